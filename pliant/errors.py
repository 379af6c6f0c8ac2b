"""The errors of Pliant, and whose fault they are.

    PliantError
    |-- InputError         the caller's: names the field, the value and the limit (HTTP 4xx, exit status 2)
    |-- ArtifactError      a stored artifact cannot be used
    |   |-- DigestError    a file is not the one that was published (its name and both digests)
    |   |-- SchemaError    an unknown schema or kind
    |   |   `-- FormerSchemaError  of an older version
    |   |-- SignatureError no trusted key signed it
    |   |-- BackboneError  made for another backbone
    |   `-- DeviceError    profiled on another class of device
    |-- RegistryError      the registry is missing, out of reach, or lacks what is needed
    |   `-- UnreachableError   it does not answer, so that nothing can be said of what it holds
    |       `-- RefusedError   it does not let this user in
    |-- OfflineError       a download failed; says what works without a network
    |-- WorkerError        a device worker died or could not be started
    `-- SchedulerError     a scheduler broke the contract of protocol.py (our own fault)

Overload is no error: it is a `Drop` (see protocol.py).
"""

from __future__ import annotations

from pliant.redaction import redact


class PliantError(Exception):
    """One clear sentence for a person; the command line prints it without a traceback. It holds no secret of an address."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class InputError(PliantError):
    """A value given by the caller is outside its limit."""

    def __init__(self, field: str, value: object, limit: str) -> None:
        super().__init__(f"{field} is {value!s}, but must be {limit}")
        self.field, self.value, self.limit = field, value, limit

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return InputError, (self.field, str(self.value), self.limit)


class ArtifactError(PliantError):
    """A stored artifact cannot be used."""


class DigestError(ArtifactError):
    """A file's content is not what was published."""

    def __init__(self, file: str, expected: str, actual: str) -> None:
        super().__init__(f"{file} was altered or truncated: expected sha256 {expected}, found {actual}")
        self.file, self.expected, self.actual = file, expected, actual


class SchemaError(ArtifactError):
    """The artifact's kind or schema number is not one that this version reads."""


class FormerSchemaError(SchemaError):
    """An older version of Pliant wrote the artifact, and this one does not read it."""


class SignatureError(ArtifactError):
    """No key that is trusted has signed the artifact."""


class BackboneError(ArtifactError):
    """The artifact was made for another backbone."""


class DeviceError(ArtifactError):
    """The profile was measured on another class of device."""


class RegistryError(PliantError):
    """The registry is missing, out of reach, or lacks what is needed."""


class UnreachableError(RegistryError):
    """The registry does not answer, so that nothing can be said of what it holds. It may answer later."""


class RefusedError(UnreachableError):
    """The registry does not let this user in, or not do what was wanted."""


class OfflineError(PliantError):
    """A download failed."""


class WorkerError(PliantError):
    """A device worker died or could not be started."""


class SchedulerError(PliantError):
    """A scheduler broke the contract of protocol.py."""
