"""`pliant bento`: makes a bento of a system's service, and writes what its image is made from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pliant.errors
from pliant import systems
from pliant.errors import InputError, PliantError
from pliant.registry.package import copy_code

BENTOFILES = "deploy/bento"  # in the checkout; `python -m deploy.bentos` writes them
_TAG = re.compile(r"^__tag__:(\S+)$", re.MULTILINE)  # as `bentoml build -o tag` prints it


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "make a bento of a system's service: its code and exact versions, for `bentoml serve` and `bentoml containerize`"
    parser: ArgumentParser = commands.add_parser("bento", help=text, description=text)
    parser.add_argument("system", metavar="SYSTEM", help=", ".join(systems.names()))
    text = "also write the Dockerfile and all that it copies into FOLDER, which must be new or empty"
    parser.add_argument("--containerfile", type=Path, metavar="FOLDER", help=text)
    parser.set_defaults(run=_run)


def _run(args: Namespace) -> None:
    system, root = systems.system(args.system), checkout()
    if args.containerfile and args.containerfile.exists() and any(args.containerfile.iterdir()):
        raise InputError("--containerfile", args.containerfile, "a new or an empty folder")
    tag = build(root, system.name)
    print(tag)
    address = "PLIANT_REGISTRY_URI=ADDRESS"
    print(f"Serve it from any folder: {address} bentoml serve {tag}", file=sys.stderr)
    if not args.containerfile:
        print(f"Make an image of it: bentoml containerize {tag}", file=sys.stderr)
        return
    write_context(tag, args.containerfile)
    print(f"Make an image of it: docker build --tag {tag} {args.containerfile}", file=sys.stderr)


def checkout() -> Path:
    """Return the folder of the checkout. Raises `InputError` where Pliant's code lies in no checkout."""
    root = Path(pliant.errors.__file__).resolve().parents[1]  # installed editable it is reached over a link
    if not (root / BENTOFILES).is_dir():
        limit = f"a checkout, with {BENTOFILES}: bentos are built from one"
        raise InputError("the folder of Pliant's code", root, limit)
    return root


def build(root: Path, system: str) -> str:
    """Build the bento of a system from the checkout `root` and return its tag. Raises `PliantError` if BentoML fails."""
    bentofile = f"{BENTOFILES}/{system}.yaml"
    command = [sys.executable, "-m", "bentoml", "build", "--bentofile", bentofile, "--output", "tag"]
    if commit := _git(root, "rev-parse", "HEAD"):  # empty where git does not know the folder
        changed = "+changed" if _git(root, "status", "--porcelain") else ""
        command += ["--label", f"commit={commit}{changed}"]
    environment = {"BENTOML_DO_NOT_TRACK": "True", **os.environ}
    with TemporaryDirectory() as staged:  # BentoML does not follow the links in `pliant`
        copy_code(Path(staged), "registry", "serving")
        shutil.copy(root / "LICENSE", staged)
        shutil.copytree(root / BENTOFILES, Path(staged, BENTOFILES))
        process = subprocess.run(command, cwd=staged, env=environment, capture_output=True, text=True, check=False)
    printed = _TAG.search(process.stdout)
    if process.returncode or printed is None:
        lines = (process.stderr or process.stdout).strip().splitlines()
        raise PliantError(f"BentoML could not build the bento: {lines[-1] if lines else 'it says nothing'}")
    return printed[1]


def _git(root: Path, *words: str) -> str:
    try:
        process = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def write_context(tag: str, folder: Path) -> None:
    """Write BentoML's Dockerfile of a bento into `folder`, and beside it all that it copies."""
    import bentoml
    from bentoml.container import get_containerfile

    shutil.copytree(bentoml.get(tag).path, folder, dirs_exist_ok=True)
    get_containerfile(tag, str(folder / "Dockerfile"))
