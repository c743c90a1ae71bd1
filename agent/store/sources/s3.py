"""S3 and compatible object stores."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

from agent.errors import (
    AccessDenied,
    ArtifactGone,
    ClockSkewed,
    NetworkFailed,
    ObjectChanged,
    RangeRefused,
    RateLimited,
    ServerFailed,
    SourceRefused,
    StoreError,
)
from agent.store.sources.http import asked_wait, scrub
from agent.store.sources.source import Remote, Stream, candidate_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.exceptions import ClientError

    from agent.store.patience import Patience
    from agent.store.wanted import Sought, Wanted

_CHUNK = 2**17  # a read waits until it is full, and the watchdog sees it only then
_ABSENT = {"404", "NoSuchKey", "NotFound"}
_BUSY = {"429", "SlowDown", "TooManyRequests", "RequestLimitExceeded", "Throttling", "ThrottlingException"}
_NEXT = {
    "NoSuchBucket": "check the bucket's name and the endpoint",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "InvalidAccessKeyId": "the access key does not exist there",
    "ExpiredToken": "renew the session token",
}


class S3Source:
    """Objects below a prefix of one bucket.

    Args:
        bucket, prefix: where to look; names as in `candidate_names`.
        endpoint: address of a compatible store; None for AWS.
        region, profile: as the AWS tools know them.
        anonymous: send no credentials.
    """

    local = False

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        anonymous: bool = False,
    ) -> None:
        self._bucket = bucket
        self._prefix = prefix.strip("/")
        self._options = {"endpoint": endpoint, "region": region, "profile": profile, "anonymous": anonymous}
        self.name = f"s3://{bucket}/{self._prefix}"
        self._made: Any = None

    def offers(self, wanted: Wanted | Sought, patience: Patience) -> Iterator[Remote]:
        """Yield the objects that have a name of the wanted file.

        Raises:
            StoreError: by the code that the store answered.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        for name in candidate_names(wanted):
            key = f"{self._prefix}/{name}".lstrip("/")
            try:
                head = self._client(patience).head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                if _code(error) in _ABSENT:
                    continue
                raise _named(error, f"s3://{self._bucket}/{key}") from None
            except (BotoCoreError, ValueError) as error:
                raise _unreachable(error, self.name) from None
            if wanted.fits(head["ContentLength"]):
                yield self._remote(key, head["ContentLength"], head["ETag"], patience)

    def _remote(self, key: str, size: int, tag: str, patience: Patience) -> Remote:
        @contextlib.contextmanager
        def open_object(start: int, end: int | None) -> Iterator[Stream]:
            from botocore.exceptions import BotoCoreError, ClientError

            options = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}
            where = f"s3://{self._bucket}/{key}"
            try:
                answer = self._client(patience).get_object(Bucket=self._bucket, Key=key, IfMatch=tag, **options)
            except ClientError as error:
                raise _named(error, where) from None
            except BotoCoreError as error:
                raise _unreachable(error, where) from None
            if answer["ETag"] != tag:  # not every store knows If-Match
                answer["Body"].close()
                raise ObjectChanged(f"{where} was replaced while it was read: it is fetched from its beginning")
            found = re.match(r"bytes (\d+)-", answer.get("ContentRange") or "")  # some answer a range with status 200
            with contextlib.closing(answer["Body"]) as body:
                yield Stream(start=int(found[1]) if found else 0, total=size, chunks=_chunks(body, where))

        return Remote(size=size, ranges=True, open=open_object)

    def _client(self, patience: Patience) -> Any:
        if self._made is None:
            import boto3
            from botocore import UNSIGNED
            from botocore.config import Config

            # stores that only resemble S3 answer checksums of pieces as if they were of the whole; the plan's sha256 decides
            config = Config(
                connect_timeout=patience.connect,
                read_timeout=patience.read,
                retries={"total_max_attempts": 1},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                **({"signature_version": UNSIGNED} if self._options["anonymous"] else {}),
            )
            session = boto3.Session(profile_name=self._options["profile"], region_name=self._options["region"])
            self._made = session.client("s3", endpoint_url=self._options["endpoint"], config=config)
        return self._made


def _chunks(body: Any, where: str) -> Iterator[bytes]:
    import urllib3
    from botocore.exceptions import BotoCoreError

    try:
        while chunk := body.read(_CHUNK):
            yield chunk
    except (BotoCoreError, urllib3.exceptions.HTTPError, OSError) as error:
        raise NetworkFailed(f"{where} broke off: {scrub(error)}") from None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _named(error: ClientError, where: str) -> StoreError:
    code = _code(error)
    metadata = error.response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    answer = f"{where} answered {status} {code}"
    wait = asked_wait(metadata.get("HTTPHeaders", {}))
    if code == "RequestTimeTooSkewed":
        return ClockSkewed(f"{answer}: set the clock of this machine (`timedatectl` shows it)")
    if code in ("PreconditionFailed", "412"):
        return ObjectChanged(f"{where} was replaced while it was read: it is fetched from its beginning")
    if code in ("InvalidRange", "416"):
        return RangeRefused(f"{answer}: what was fetched so far does not fit it")
    if code in _BUSY or status == 429:
        return RateLimited(f"{answer}: too many requests", retry_after=wait)
    if status >= 500:
        return ServerFailed(f"{answer}: a fault of the server", retry_after=wait)
    if code in _ABSENT or code == "NoSuchBucket":
        return ArtifactGone(f"{answer}: {_NEXT.get(code, 'nothing is there (any more)')}")
    if status in (401, 403):
        advice = _NEXT.get(code, "the credentials are missing, wrong, or not enough")
        return AccessDenied(f"{answer}: {advice}; see AWS_PROFILE, or add ?profile=NAME or ?anonymous=1 to the source")
    return SourceRefused(f"{answer}: check the source")


def _unreachable(error: Exception, where: str) -> StoreError:
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.exceptions import HTTPClientError, NoCredentialsError, PartialCredentialsError

    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return AccessDenied(
            f"{where}: no credentials are set: see AWS_PROFILE, or add ?profile=NAME or ?anonymous=1 to the source"
        )
    if isinstance(error, HTTPClientError) and "Invalid header value" in str(error):
        return AccessDenied(
            f"{where}: the credentials hold a line break or another character that no key has: set them anew"
        )
    if isinstance(error, HTTPClientError | NoConnection):
        return NetworkFailed(f"{where}: {scrub(error)}")
    return SourceRefused(f"{where}: {scrub(error)}")
