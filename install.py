"""Makes .venv and installs Pliant into it with exact pins: `python3 install.py [demo|dev]`, as the Makefile calls it.

demo: what Pliant runs; dev: the tools of the tests, too. It uses the standard library alone, in the syntax of old Pythons,
so that a Python that is too old is told so in a sentence. While pip works a line says at least every 15 s how far it is;
pip's own output goes to .venv/install.log. An interrupted install goes on: what pip has downloaded and installed is kept,
and a package that was being copied is copied again. Without an NVIDIA card it takes PyTorch's build for CPUs, where the
index of these answers.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

OLDEST, TOO_NEW = (3, 11), (3, 15)  # as in pyproject.toml
HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
LOG = os.path.join(VENV, "install.log")
TEMPORARY = os.path.join(VENV, "downloads")  # beside what it becomes: one disk to look at, one folder to measure
EVERY = 10.0  # seconds between two lines; a reader is promised one every 15
DOWNLOADED = {"demo": 3.3e9, "dev": 3.5e9}  # bytes, as measured on Linux x86-64 with the pins of constraints.txt
INSTALLED = {"demo": 7.1e9, "dev": 7.5e9}
FOR_CPUS = "https://download.pytorch.org/whl/cpu"
CUDA_DOWNLOADED, CUDA_INSTALLED = 2.8e9, 4.7e9  # bytes of these that torch 2.13's build for CPUs saves
COPYING = 5e7  # bytes in .venv/lib more than before: pip has begun to copy


class InstallError(Exception):
    """Why nothing could be installed, in one sentence."""


def main(arguments):
    scope = arguments[0] if arguments else "demo"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if scope not in INSTALLED:
            raise InstallError("install what? python3 install.py demo, or python3 install.py dev")
        check_python(sys.version_info[:2])
        check_folder(HERE)
        index = index_for_cpus()
        if index:
            DOWNLOADED[scope] -= CUDA_DOWNLOADED
            INSTALLED[scope] -= CUDA_INSTALLED
        check_space(scope)
        with one_at_a_time():
            make_environment()
            install(scope, index)
    except InstallError as error:
        print("install: %s" % error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninstall: interrupted; the same command goes on from what is there", file=sys.stderr)
        return 130
    return 0


def check_python(version):
    if not OLDEST <= version < TOO_NEW:
        raise InstallError(
            "Pliant needs Python 3.%d to 3.%d and this is %d.%d; name another one: make PYTHON=python3.12 ..."
            % (OLDEST[1], TOO_NEW[1] - 1, version[0], version[1])
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        raise InstallError(
            "this Python has no venv; on Debian and Ubuntu it comes with: apt install python3-venv"
        ) from None


def index_for_cpus():
    """Return the index of PyTorch's builds for CPUs; empty beside an NVIDIA card, and where it does not answer."""
    if not sys.platform.startswith("linux") or shutil.which("nvidia-smi") or os.path.exists("/proc/driver/nvidia"):
        return ""
    try:
        urllib.request.urlopen(FOR_CPUS + "/torch/", timeout=5).close()
    except OSError:
        return ""
    return FOR_CPUS


def check_folder(folder):
    for place in (folder, VENV):
        if os.path.exists(place) and not os.access(place, os.W_OK | os.X_OK):
            raise InstallError("%s may not be written to by this user" % place)


def check_space(scope):
    """Stop before the disk is full: downloads and the installed files are there together for a while."""
    needed = DOWNLOADED[scope] + INSTALLED[scope] - size(VENV)
    free = shutil.disk_usage(HERE).free
    if free < needed and not os.environ.get("FORCE"):
        text = (
            "installing needs about %.1f GB of free disk space in %s, and %.1f GB are free (FORCE=1 tries all the same)"
        )
        raise InstallError(text % (needed / 1e9, HERE, free / 1e9))


@contextmanager
def one_at_a_time():
    """Hold a lock beside .venv (which may be made anew); a second install in the same folder is told to wait."""
    with open(VENV + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InstallError("another install is at work in this folder; wait until it is done") from None
        try:
            yield
        finally:
            os.remove(VENV + ".lock")


def make_environment():
    """A working .venv of this version of Python; one that another version made, or that was cut short, is made again."""
    python = os.path.join(VENV, "bin", "python")
    probe = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    if os.path.exists(python):
        result = subprocess.run([python, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if result.returncode == 0 and result.stdout.strip() == "%d.%d" % sys.version_info[:2]:
            return
        say("making .venv again: it is not one of Python %d.%d" % sys.version_info[:2])
    command = [sys.executable, "-m", "venv", "--clear", VENV]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        why = last_line(result.stdout.splitlines(), "no reason given")
        raise InstallError("no virtual environment could be made in %s: %s" % (VENV, why))


def install(scope, index):
    forget_half_copied()
    what = ".[all]" if scope == "demo" else ".[%s]" % scope
    command = [os.path.join(VENV, "bin", "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--progress-bar", "off", "--constraint", "constraints.txt", "--editable", "./packages/pliant-core"]
    command += ["--editable", what, *(["--extra-index-url", index] if index else [])]
    shutil.rmtree(TEMPORARY, ignore_errors=True)
    os.makedirs(TEMPORARY)
    say(
        "installing Pliant%s and what it needs into .venv: at most %.1f GB of downloads, %.1f GB on the disk"
        % ("" if scope == "demo" else ", its tests", DOWNLOADED[scope] / 1e9, INSTALLED[scope] / 1e9)
    )
    start = time.time()
    environment = dict(os.environ, TMPDIR=TEMPORARY)
    try:
        with open(LOG, "w") as log:
            pip = subprocess.Popen(command, cwd=HERE, stdout=log, stderr=subprocess.STDOUT, env=environment)
            try:
                follow(pip, scope, start)
            finally:
                if pip.poll() is None:
                    pip.terminate()
                    pip.wait()
    finally:
        shutil.rmtree(TEMPORARY, ignore_errors=True)
    if pip.returncode != 0:
        raise InstallError(reason(scope))
    say("done after %.0f s" % (time.time() - start))


def follow(pip, scope, start):
    """Say how far pip is until it ends, by the bytes that it has downloaded and copied."""
    library = os.path.join(VENV, "lib")
    before, downloaded, said = size(library), 0, start
    while pip.poll() is None:
        time.sleep(0.2)
        if time.time() - said < EVERY:
            continue
        said = time.time()
        downloaded = max(downloaded, size(TEMPORARY))
        share = share_done(scope, downloaded, before, size(library))
        left = ", about %.0f s left" % ((said - start) * (1 - share) / share) if share > 0.02 else ""
        say("%.0f%% after %.0f s%s (%s)" % (100 * share, said - start, left, activity()))


def share_done(scope, downloaded, before, now):
    """The first half is what pip downloads, the second what it copies, which begins when all is downloaded.

    Bytes: `downloaded`, of .venv/lib `before` pip began and `now`.
    """
    copied = now - before
    if copied < COPYING:
        return 0.5 * min(downloaded / DOWNLOADED[scope], 1.0)
    return min(0.5 + 0.5 * copied / max(INSTALLED[scope] - before, 1.0), 0.99)


def activity():
    """What pip's log says last, in a few words."""
    for line in reversed(log_lines()):
        words = line.split()
        if words and words[0] in ("Collecting", "Downloading", "Processing", "Using"):
            return "downloading and resolving: %s" % os.path.basename(words[1])[:40]
        if line.startswith("Installing collected packages"):
            return "copying packages into .venv"
    return "starting"


def reason(scope):
    """Why pip failed, in one sentence. On a full disk not even its log says so."""
    lines = log_lines()
    text = "\n".join(lines)
    if "No space left on device" in text or shutil.disk_usage(HERE).free < INSTALLED[scope] - size(VENV):
        return "the disk is full; `make install` goes on from what is there once about 10 GB are free"
    if "Permission denied" in text or "Errno 13" in text:
        return "a file may not be written by this user: %s" % last_error(lines)
    if "No matching distribution" in text or "Could not find a version" in text:
        return "a package was not found; is the package index reachable? %s (log: %s)" % (last_error(lines), LOG)
    return "pip could not install: %s (log: %s)" % (last_error(lines), LOG)


def last_error(lines):
    errors = [line for line in lines if "ERROR" in line or "error:" in line]
    return last_line(errors or lines, "no word from pip").replace("ERROR: ", "")


def last_line(lines, none):
    return ([none] + [line.strip() for line in lines if line.strip()])[-1][:300]


def log_lines():
    try:
        with open(LOG, errors="replace") as log:
            return log.read().splitlines()
    except OSError:
        return []


def forget_half_copied():
    """Take away the description of a package that an interrupted install left without RECORD, which pip writes last."""
    for folder, names, files in os.walk(os.path.join(VENV, "lib")):
        if folder.endswith(".dist-info"):
            if "RECORD" not in files:
                shutil.rmtree(folder)
            names[:] = []
        elif (
            os.path.basename(folder) != "site-packages" and os.path.basename(os.path.dirname(folder)) == "site-packages"
        ):
            names[:] = []


def size(folder):
    """Bytes of all files below a folder."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                pass  # pip moves and removes files meanwhile
    return total


def say(text):
    print("install: %s" % text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
