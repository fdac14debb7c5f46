"""The driver's errors in Migrator's words: may it succeed later, was it perhaps carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as e

from migrator.errors import DoesNotFit, MigratorError, Terminal, Transient

# The service answered: the request was not carried out, and may be later.
_THROTTLED = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "LimitExceededException",
    "ResourceInUseException",
    "ReplicatedWriteConflictException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
_BROKEN = {"InternalServerError", "InternalServerErrorException", "ServiceUnavailable"}
_NO_RIGHT = {
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
}
_TOO_LARGE = ("size", "exceed", "larger", "too long", "Nesting Levels", "significant digits")
CANCELLED = "TransactionCanceledException"
CONDITION = "ConditionalCheckFailedException"
NOT_FOUND = "ResourceNotFoundException"
UNKNOWN_OPERATION = "UnknownOperationException"
TRIMMED = "TrimmedDataAccessException"
EXPIRED = "ExpiredIteratorException"


_CAUSES = {
    "ConditionalCheckFailed": CONDITION,
    "TransactionConflict": "TransactionConflictException",
    "ThrottlingError": "ThrottlingException",
    "ProvisionedThroughputExceeded": "ProvisionedThroughputExceededException",
    "ItemCollectionSizeLimitExceeded": "ItemCollectionSizeLimitExceededException",
    "ValidationError": "ValidationException",
}


class Condition(Exception):
    """The condition of a write did not hold; for the caller, never for a person."""


class Unsupported(Exception):
    """The server has no such operation, as emulators of DynamoDB may not."""


@contextmanager
def edge(where: str, *, key: object = None, writing: bool = False) -> Iterator[None]:
    """Translate whatever the driver raises inside."""
    try:
        yield
    except (MigratorError, Condition, Unsupported):
        raise
    except (e.BotoCoreError, e.ClientError, e.HTTPClientError) as error:
        raise translated(error, where, key=key, writing=writing) from error


def code_of(error: BaseException | None) -> str:
    """The service's name of an error; empty for one of another sort."""
    if not isinstance(error, e.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_throttle(error: MigratorError) -> bool:
    """Whether the service asked to wait."""
    return code_of(error.__cause__) in _THROTTLED


def is_no_right(error: MigratorError) -> bool:
    """Whether the service refused for want of a right."""
    return code_of(error.__cause__) in _NO_RIGHT


def translated(
    error: Exception, where: str, *, key: object = None, writing: bool = False
) -> Exception:
    """The error for one of the driver's. A write of unknown fate is ``unknown``."""
    if isinstance(error, e.ClientError):
        return _by_code(error, where, key, writing)
    text = _short(error)
    if isinstance(
        error, (e.NoCredentialsError, e.PartialCredentialsError, e.CredentialRetrievalError)
    ):
        return Terminal(
            f"there are no credentials: {text}",
            where=where,
            hint="give them as AWS does (environment, profile, role), or as access_key_id with "
            "the password as the secret key",
        )
    if isinstance(
        error, (e.EndpointConnectionError, e.ConnectTimeoutError, e.ProxyConnectionError)
    ):
        return Transient(
            f"can't reach DynamoDB: {text}",
            where=where,
            hint="check the URL, the region and the network; then try again",
        )
    if isinstance(error, e.SSLError):
        return Terminal(f"TLS failed: {text}", where=where, hint="check tls and ca_bundle")
    if isinstance(error, (e.HTTPClientError, e.ReadTimeoutError, e.ConnectionError)):
        return Transient(
            f"the connection failed: {text}",
            where=where,
            unknown=writing,
            hint="it is tried again; smaller batches help a slow network",
        )
    if isinstance(error, e.ChecksumError) or "ResponseParser" in type(error).__name__:
        return Transient(f"a damaged answer: {text}", where=where, unknown=writing)
    return Terminal(text, where=where, hint="mend the store's url or options")


def _by_code(error: e.ClientError, where: str, key: object, writing: bool) -> Exception:
    code = code_of(error)
    text = _short(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == CANCELLED:
        code, text = _cause(error)
    if code == CONDITION:
        return Condition(text)
    if code == UNKNOWN_OPERATION:
        return Unsupported(text)
    if code in _THROTTLED:
        return Transient(
            f"DynamoDB asks to wait ({code})",
            where=where,
            hint="it is tried again; lower write_units or read_units of the store, or give the "
            "table more capacity, if it goes on",
        )
    if code in _BROKEN or status >= 500:
        return Transient(f"the service failed: {text}", where=where, unknown=writing)
    if code in _NO_RIGHT:
        return Terminal(
            f"DynamoDB refused the login or the right: {text}",
            where=where,
            hint="check the credentials, the region and the policy of that user or role",
        )
    if code == NOT_FOUND:
        return Terminal(
            "there is no such table",
            where=where,
            hint="check its name and the region; a run creates its target when it prepares",
        )
    refused = code in ("ValidationException", "ItemCollectionSizeLimitExceededException")
    if refused and (key is not None or any(word in text for word in _TOO_LARGE)):
        return DoesNotFit(
            f"DynamoDB does not take it: {text}",
            key=key,
            where=where,
            hint="see what of the block is over the limits, or set oversize='quarantine'",
        )
    return Terminal(f"DynamoDB refused it: {text}", where=where)


def _cause(error: e.ClientError) -> tuple[str, str]:
    """Why a transaction was cancelled, as the error that one of its actions would have been."""
    reasons = {
        str(reason.get("Code")): str(reason.get("Message") or reason.get("Code"))
        for reason in error.response.get("CancellationReasons") or ()
    }
    for code, text in reasons.items():
        if code not in ("None", "ConditionalCheckFailed", "TransactionConflict"):
            return _CAUSES.get(code, code), text
    for code, text in reasons.items():
        if code != "None":
            return _CAUSES[code], text
    return CANCELLED, _short(error)


def _short(error: Exception) -> str:
    """The text of an error on one line."""
    if isinstance(error, e.ClientError):
        found = error.response.get("Error", {})
        text = f"{found.get('Message') or found.get('Code') or error}"
    else:
        text = str(error)
    return " ".join(text.split())[:400]
