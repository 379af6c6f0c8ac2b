"""`pliant sign`: makes a key pair, signs versions in the registry, and says which of them are signed by whom.

What flows publish they sign themselves (PLIANT_SIGNING_KEY); this is for what was there before, and for a new key.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pliant import systems
from pliant.errors import ArtifactError, InputError, RegistryError, UnreachableError

if TYPE_CHECKING:
    from pliant.registry.mlflow_store import MlflowRegistry
    from pliant.registry.package import Published
    from pliant.registry.signing.signatures import Signer, Trust
    from pliant.registry.signing.versions import SignatureState

TEXT = "make a key, sign what is in the registry with it, or see what is signed by whom"
EPILOG = """
  pliant sign --new-key release.pem      make a key: release.pem (yours alone) and release.pub.pem (for services)
  pliant sign SYSTEM --key release.pem   sign the versions that are served, wait, or were served before
  pliant sign --check SYSTEM --trusted release.pub.pem

Flows sign what they publish where PLIANT_SIGNING_KEY names a private key. Flows and services refuse what is not signed
where PLIANT_TRUSTED_KEYS names a file of public keys, or a folder with some in *.pem. A signature says that you vouch for
the version as it is: look at it first. The exit status is 1 if --check finds a version that no trusted key signed.
"""


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    parser: ArgumentParser = commands.add_parser(
        "sign", help=TEXT, description=TEXT, epilog=EPILOG, formatter_class=RawDescriptionHelpFormatter
    )
    # Not `system`: cli/main.py looks that up among the commands with options of a system's own.
    parser.add_argument("subject", nargs="?", metavar="SYSTEM", help=", ".join(systems.names()))
    parser.add_argument("--new-key", type=Path, metavar="FILE", help="make a key pair: FILE, and FILE with .pub.pem")
    parser.add_argument("--check", action="store_true", help="sign nothing, and say who has signed what")
    text = "also old versions that no alias and no release with an alias names"
    parser.add_argument("--all-versions", action="store_true", help=text)
    text = "private key to sign with (default: PLIANT_SIGNING_KEY)"
    parser.add_argument("--key", type=Path, metavar="FILE", help=text)
    text = "public keys to check with, a file or a folder (default: PLIANT_TRUSTED_KEYS)"
    parser.add_argument("--trusted", type=Path, metavar="PATH", help=text)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Run the command and return its exit status."""
    if args.new_key is not None:
        if args.subject or args.check or args.all_versions or args.key or args.trusted:
            raise InputError("--new-key", "given with something else", "alone: it makes a key and signs nothing")
        return _new_key(args.new_key)
    if args.subject is None:
        raise InputError("SYSTEM", "missing", f"one of {', '.join(systems.names())}, or --new-key FILE in its place")
    system = systems.system(args.subject).name
    return _check(args, system) if args.check else _sign(args, system)


def _new_key(file: Path) -> int:
    from pliant.registry.signing.signatures import write_pair

    public, id_ = write_pair(file)
    print(f"Key {id_}: {file} is private, and {public} is public.")
    print(f"Flows sign with it under PLIANT_SIGNING_KEY={file.absolute()}.", file=sys.stderr)
    text = f"Services and flows accept what it signs, and nothing else, under PLIANT_TRUSTED_KEYS={public.absolute()}"
    print(f"{text}; sign what is in the registry before (`pliant sign SYSTEM`).", file=sys.stderr)
    return 0


def _sign(args: Namespace, system: str) -> int:
    from pliant.registry.signing.versions import announce, sign_version

    registry = _open(args, system)
    signer = registry.signing.signer
    if signer is None:
        limit = "the file of a private key, or --key FILE in its place; `pliant sign --new-key FILE` makes one"
        raise InputError("PLIANT_SIGNING_KEY", "not set", limit)
    signed, failed = 0, 0
    known = _versions(args, registry, system)
    for published in known:
        try:
            new = sign_version(registry, published, signer)
        except UnreachableError:
            raise
        except (ArtifactError, RegistryError) as error:
            failed += 1
            print(f"pliant: version {published.version} of {published.name} is not signed: {error}", file=sys.stderr)
            continue
        if new:
            signed += 1
            print(f"{published.name} version {published.version}, artifact {published.digest[:12]}: signed")
    if signed:
        announce(registry, system)
    former = len(known) - signed - failed
    print(f"{system}: {signed} signed with key {signer.id}, {former} were already", end="")
    print(f", {failed} could not be." if failed else ".")
    return 2 if failed else 0


def _check(args: Namespace, system: str) -> int:
    from pliant.registry.signing.versions import state_of

    registry = _open(args, system)
    trust = registry.signing.trust
    if trust is None:
        limit = "the public keys that you trust, a file or a folder, or --trusted PATH in its place"
        raise InputError("PLIANT_TRUSTED_KEYS", "not set", limit)
    states = [state_of(published, trust) for published in _versions(args, registry, system)]
    for state in states:
        print(f"{state.published.name} version {state.published.version}: {_words(state)}")
    lacking = sum(not state.by for state in states)
    print(f"{system}: {len(states) - lacking} of {len(states)} versions are signed by a key in {trust.path}.")
    return int(lacking > 0)


def _words(state: SignatureState) -> str:
    """Return who has signed a version, as part of a sentence."""
    by = [f"signed by {key.file} (key {key.id})" for key in state.by]
    broken = [f"WRONG signature by key {id_}: it is not of this artifact under this name" for id_ in state.broken]
    unknown = [f"signed by key {id_}, which is not trusted" for id_ in state.unknown]
    return "; ".join([*by, *broken, *unknown]) or "not signed"


def _open(args: Namespace, system: str) -> MlflowRegistry:
    """Return the registry, with the keys that the options name in place of the settings'; it fetches what is unsigned."""
    from pliant.flows import settings
    from pliant.flows.release import open_registry
    from pliant.registry.signing.signatures import Signing, Trust, load_signer

    project = settings.prepare()
    signer: Signer | None = load_signer(args.key, "--key") if args.key else None
    trust: Trust | None = Trust(args.trusted, "--trusted") if args.trusted else None
    if signer is None and project.signing_key is not None and not args.check:
        signer = load_signer(project.signing_key)
    if trust is None and project.trusted_keys is not None:
        trust = Trust(project.trusted_keys)
    registry = open_registry(replace(project, signing_key=None, trusted_keys=None), system)
    if not registry.exists():
        raise InputError("SYSTEM", system, f"one with versions in the registry: run `pliant train {system}` first")
    return replace(registry, signing=Signing(signer, trust))


def _versions(args: Namespace, registry: MlflowRegistry, system: str) -> Sequence[Published]:
    from pliant.registry.signing.versions import all_versions, versions_in_use

    known = all_versions(registry, system) if args.all_versions else versions_in_use(registry, system)
    if not known:
        raise InputError("SYSTEM", system, f"one with versions in the registry: run `pliant train {system}` first")
    return known
