"""The hub, spoken to by the real client over a real socket, in all its moods."""

from __future__ import annotations

import email.utils
import threading
import time
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest

from agent.errors import FetchFailed, SourceUnknown
from tests.agent.store.conftest import REPO, REVISION, Notes, Opener, fetch, leftovers, model_bytes, wanted
from tests.agent.store.hub_server import HTML, LFS_POINTER, XML, Hub, serve

DATA = model_bytes(3_000_000)
FILE = wanted(DATA)
TOKEN = "hf_" + "SecretSecretSecret"


@pytest.fixture(autouse=True)
def _publish(hub: Hub) -> None:
    """The hub holds the file."""
    hub.files[REPO, REVISION, FILE.path] = DATA


def be_home(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `hub` the one that huggingface_hub is configured for, as HF_ENDPOINT does before its import."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)


def at(hub: Hub) -> str:
    """The hub as a source."""
    return f"hub:{hub.address}"


def test_a_file_is_fetched_once(hub: Hub, store: Opener) -> None:
    """The bytes come under their own name, and the second time nobody is asked."""
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    asked = hub.requests.total()
    assert asked == 2
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert hub.requests.total() == asked


def test_names_of_shards_are_kept(hub: Hub, store: Opener) -> None:
    """Files of one model lie in one folder under the names that llama.cpp looks for."""
    shards = [model_bytes(1000, seed) for seed in range(3)]
    files = [wanted(data, f"Q4/m-0000{index + 1}-of-00003.gguf") for index, data in enumerate(shards)]
    for file, data in zip(files, shards, strict=True):
        hub.files[REPO, REVISION, file.path] = data
    with store(at(hub)).lend(files) as lent:
        assert [lent[file].name for file in files] == [file.name for file in files]
        assert len({path.parent for path in lent.values()}) == 1
        assert sorted(path.name for path in lent[files[0]].parent.iterdir()) == [file.name for file in files]


@pytest.mark.parametrize(
    ("head", "get", "cause", "requests"),
    [
        ([(401, {})], [], "access_denied", 1),
        ([(401, {"X-Error-Code": "RepoNotFound"})], [], "access_denied", 1),
        ([(403, {"X-Error-Code": "GatedRepo"})], [], "access_denied", 1),
        ([(403, {"X-Error-Message": "no"})], [], "access_denied", 1),
        ([(404, {"X-Error-Code": "RepoNotFound"})], [], "artifact_gone", 1),
        ([(404, {"X-Error-Code": "RevisionNotFound"})], [], "artifact_gone", 1),
        ([(404, {"X-Error-Code": "EntryNotFound"})], [], "artifact_gone", 1),
        ([(404, {})], [], "artifact_gone", 1),
        ([(410, {})], [], "artifact_gone", 1),
        ([(400, {})], [], "source_refused", 1),
        ([(451, {})], [], "source_refused", 1),
        ([(500, {})] * 9, [], "server_failed", 3),
        ([(503, {})] * 9, [], "server_failed", 3),
        ([(429, {})] * 9, [], "rate_limited", 3),
        ([(429, {"Retry-After": "7200"})], [], "rate_limited", 1),
        ([], [(403, {})], "access_denied", 2),
        ([], [(404, {})], "artifact_gone", 2),
        ([], [(418, {})], "source_refused", 2),
        ([], [(502, {})] * 9, "server_failed", 6),
        ([], [(429, {})] * 9, "rate_limited", 6),
    ],
)
def test_answers_are_named(hub: Hub, store: Opener, head: list[Any], get: list[Any], cause: str, requests: int) -> None:
    """Every refusal has its cause; 4xx is taken at once, 5xx and 429 are tried again, and nothing is left behind."""
    hub.head, hub.get = list(head), list(get)
    opened = store(at(hub))
    with pytest.raises(FetchFailed, match=f": {cause}: ") as caught:
        fetch(opened, [FILE])
    assert caught.value.exit_code == 4
    assert hub.requests.total() == requests
    assert leftovers(opened) in ([], [opened.root.partial(FILE.sha256)])
    assert opened.root.blobs() == []


@pytest.mark.parametrize("where", ["head", "get"])
def test_a_moment_of_weakness_is_overcome(hub: Hub, store: Opener, waits: list[float], where: str) -> None:
    """One 5xx or one closed connection costs a wait, not the fetch."""
    setattr(hub, where, [(500, {}), (503, {})])
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert len(waits) == 2
    assert 0.5 <= waits[0] <= 1
    assert 1 <= waits[1] <= 2


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured(hub: Hub, store: Opener, waits: list[float], as_date: bool) -> None:
    """The wait is the one that was asked for, in seconds or as a date."""
    hub.head = [(429, {"Retry-After": email.utils.formatdate(time.time() + 60, usegmt=True) if as_date else "60"})]
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert len(waits) == 1
    assert 55 <= waits[0] <= 60


def test_a_window_of_the_hub_is_waited_for(hub: Hub, store: Opener, waits: list[float]) -> None:
    """The hub itself says in RateLimit when it may be asked again; where requests are left, the wait is our own."""
    hub.head = [(429, {"RateLimit": '"resolvers";r=0;t=55'}), (429, {"RateLimit": '"resolvers";r=7;t=55'})]
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert waits[0] == 55
    assert waits[1] < 5


@pytest.mark.parametrize("skew", [-1200.0, 1200.0])
def test_a_date_to_wait_for_is_the_servers(hub: Hub, store: Opener, waits: list[float], skew: float) -> None:
    """A clock that is 20 minutes off makes no wait of 21 minutes of one, nor none at all: the answer's own Date counts."""
    hub.date = skew
    hub.head = [(429, {"Retry-After": email.utils.formatdate(time.time() + skew + 60, usegmt=True)})]
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert len(waits) == 1
    assert 55 <= waits[0] <= 61


@pytest.mark.parametrize("token", ["hf_Sécretsecret", "hf_Secret secret", "hf_Secret\x01secret"])
def test_a_token_that_no_header_carries_is_named(
    hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """Refused at once as what it is, not as a network that failed, and not shown."""
    monkeypatch.setenv("HF_TOKEN", token)
    be_home(hub, monkeypatch)
    with pytest.raises(FetchFailed, match="access_denied: the token in HF_TOKEN") as caught:
        fetch(store("hub"), [FILE])
    assert "ecret" not in str(caught.value)
    assert hub.requests.total() == 0


@pytest.mark.parametrize("endpoint", ["nonsense", "http://host:99999"])
def test_an_endpoint_of_the_environment_that_is_no_address_is_refused(
    store: Opener, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    """HF_ENDPOINT is named, since the user wrote no address anywhere else."""
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    with pytest.raises(SourceUnknown, match="HF_ENDPOINT"):
        store("hub")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [(HTML, "html_page"), (XML, "xml_error"), (LFS_POINTER, "lfs_pointer"), (b'{"error": 1}', "json_document")],
)
def test_an_error_that_is_sent_as_the_model_is_named(hub: Hub, store: Opener, body: bytes, verdict: str) -> None:
    """A page, an XML error and an LFS pointer are called what they are, and not kept."""
    hub.body = body
    opened = store(at(hub))
    with pytest.raises(FetchFailed, match=rf"wrong_bytes: .*({verdict})"):
        fetch(opened, [FILE])
    assert leftovers(opened) == []


@pytest.mark.parametrize("body", [HTML * 5, XML * 5, LFS_POINTER * 5])
def test_an_error_of_unknown_length_is_named(hub: Hub, store: Opener, body: bytes) -> None:
    """Also where the answer does not say how long it is, and so looks like a transfer that was cut."""
    hub.body, hub.chunked = body, True
    with pytest.raises(FetchFailed, match=r"wrong_bytes: .*(html_page|xml_error|lfs_pointer)"):
        fetch(store(at(hub)), [FILE])


def test_a_slow_start_is_no_other_file(hub: Hub, store: Opener) -> None:
    """A few bytes, then a pause: nothing is judged by a head that is not there yet."""
    hub.slow_start = 10
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    hub.body = HTML * 5
    with pytest.raises(FetchFailed, match="html_page"):
        fetch(store(at(hub), folder="other"), [FILE])


@pytest.mark.parametrize("data", [b"", b"x", HTML, b"FUGG" + bytes(1000), b'{"a": 1}'])
@pytest.mark.parametrize("name", ["model.gguf", "model-package.json"])
def test_the_digest_alone_decides(hub: Hub, store: Opener, data: bytes, name: str) -> None:
    """What the plan pins is fetched, whatever it looks like."""
    file = wanted(data, name)
    hub.files[REPO, REVISION, name] = data
    assert fetch(store(at(hub)), [file]) == [data]


@pytest.mark.parametrize(
    ("announce", "cause"),
    [
        ({"X-Repo-Commit": "b" * 40}, "revision_moved"),
        ({"X-Linked-Size": "17"}, "wrong_bytes"),
        ({"X-Linked-Etag": '"' + "0" * 64 + '"'}, "wrong_bytes"),
    ],
)
def test_another_file_is_refused_before_a_byte(
    hub: Hub, store: Opener, announce: dict[str, str | None], cause: str
) -> None:
    """Where the hub itself announces another revision, size or digest, nothing is fetched."""
    hub.announce = announce
    with pytest.raises(FetchFailed, match=f": {cause}: "):
        fetch(store(at(hub)), [FILE])
    assert hub.gets() == 0


def test_wrong_bytes_of_the_right_size_are_named_and_not_kept(hub: Hub, store: Opener) -> None:
    """A mirror that lies in its bytes and its headers is caught by the hash and named, with both digests."""
    lie = bytearray(DATA)
    lie[1_000_000] ^= 1
    hub.files[REPO, REVISION, FILE.path] = bytes(lie)
    hub.announce = {"X-Linked-Etag": f'"{FILE.sha256}"'}
    opened = store(at(hub))
    with pytest.raises(FetchFailed, match=f"hub {hub.address}: wrong_bytes: .*{FILE.sha256}"):
        fetch(opened, [FILE])
    assert leftovers(opened) == []
    assert opened.root.blobs() == []


def test_the_next_source_is_tried_after_one_that_lies(hub: Hub, store: Opener) -> None:
    """The liar is named in a note, and the honest one's bytes are what is lent."""
    notes = Notes()
    with serve(Hub(files={(REPO, REVISION, FILE.path): DATA}, body=HTML)) as liar:
        assert fetch(store(at(liar), at(hub), progress=notes), [FILE]) == [DATA]
        assert any(liar.address in note and "html_page" in note for note in notes.notes)


def test_a_moved_main_is_never_followed(hub: Hub, store: Opener) -> None:
    """A pinned revision that is gone is artifact_gone, though main is fine; a copy with the right digest serves."""
    other = "f" * 40
    hub.files = {(REPO, "main", FILE.path): DATA, (REPO, other, FILE.path): DATA}
    with pytest.raises(FetchFailed, match=r"artifact_gone: .*history may have been rewritten"):
        fetch(store(at(hub)), [FILE])
    assert all("main" not in path and other not in path for _, path, _ in hub.seen)
    copy = store().root.path.parent / "copies" / FILE.repo / FILE.revision
    copy.mkdir(parents=True)
    (copy / FILE.path).write_bytes(DATA)
    assert fetch(store(at(hub), str(copy.parents[2])), [FILE]) == [DATA]


def test_a_cut_transfer_is_continued(hub: Hub, store: Opener) -> None:
    """Each connection ends early; every byte is sent about once, because each try goes on where the last one stopped."""
    hub.cut = 1_100_000
    notes = Notes()
    assert fetch(store(at(hub), progress=notes), [FILE]) == [DATA]
    assert hub.gets() == 3
    assert hub.sent == len(DATA)


def test_a_server_without_ranges_serves_in_one_go(hub: Hub, store: Opener) -> None:
    """A 200 to a range begins the file anew, and the bytes are right."""
    hub.ranges = False
    hub.cut = 1_100_000
    opened = store(at(hub), patience={"attempts": 2})
    with pytest.raises(FetchFailed, match=r"cut_short|network_failed"):
        fetch(opened, [FILE])
    assert opened.root.partial(FILE.sha256).stat().st_size > 0
    hub.cut = None
    assert fetch(opened, [FILE]) == [DATA]


@pytest.mark.parametrize("beginning", ["wrong", "longer", "whole", "whole and wrong", "empty"])
def test_any_leftover_is_made_good(hub: Hub, store: Opener, beginning: str) -> None:
    """Whatever stands in the partial file (a crash, another source's bytes, too many), the blob is right at the end."""
    opened = store(at(hub))
    partial = opened.root.partial(FILE.sha256)
    partial.parent.mkdir(parents=True)
    partial.write_bytes(
        {
            "wrong": b"\0" * 1_000_000,
            "longer": DATA + b"more",
            "whole": DATA,
            "whole and wrong": DATA[:-1] + b"\0",
            "empty": b"",
        }[beginning]
    )
    assert fetch(opened, [FILE]) == [DATA]
    assert leftovers(opened) == []


def test_416_begins_anew(hub: Hub, store: Opener) -> None:
    """A range that the other side refuses costs the beginning, not the fetch."""
    opened = store(at(hub))
    opened.root.partials.mkdir(parents=True)
    opened.root.partial(FILE.sha256).write_bytes(DATA[:2_000_000])
    hub.get = [(416, {})]
    assert fetch(opened, [FILE]) == [DATA]


def test_a_trickle_is_cut(hub: Hub, store: Opener) -> None:
    """A connection that never falls silent and never gets anywhere is named stalled."""
    hub.rate = 2000.0
    patience = {"attempts": 1, "stall_window": 0.3, "stall_bytes": 100_000}
    with pytest.raises(FetchFailed, match=": stalled: "):
        fetch(store(at(hub), patience=patience), [FILE])


def test_silence_is_cut(store: Opener) -> None:
    """A server that accepts and says nothing is network_failed within the time-out."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"hub:http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(FetchFailed, match=": network_failed: "):
            fetch(store(address, patience={"attempts": 1, "connect": 0.3, "read": 0.3}), [FILE])


def test_nobody_listens(store: Opener) -> None:
    """A refused connection is network_failed."""
    with pytest.raises(FetchFailed, match=": network_failed: "):
        fetch(store("hub:http://127.0.0.1:1"), [FILE])


def test_pieces_are_fetched_at_the_same_time(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file comes in pieces over several connections and is put together in order, also after a failure."""
    monkeypatch.setattr("agent.store.ranges.PIECE", 200_000)
    hub.get = [(500, {})]
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    ranges = [headers.get("range") for method, _, headers in hub.seen if method == "GET"]
    assert len(ranges) >= 15
    assert f"bytes=2800000-{len(DATA) - 1}" in ranges


@pytest.mark.parametrize("cut", [150_000, 199_999])
def test_cut_pieces_end_right(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """Pieces that are cut are fetched again; what is on the disk is always a beginning of the file."""
    monkeypatch.setattr("agent.store.ranges.PIECE", 200_000)
    hub.cut = cut
    opened = store(at(hub), patience={"attempts": 2})
    threading.Timer(0.3, lambda: setattr(hub, "cut", None)).start()
    while True:
        try:
            assert fetch(opened, [FILE]) == [DATA]
            break
        except FetchFailed:
            partial = opened.root.partial(FILE.sha256)
            assert DATA.startswith(partial.read_bytes())


def test_a_server_that_ignores_the_first_piece_sends_all(
    hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ranges are not understood the first request brings the whole file, and it is the only one."""
    monkeypatch.setattr("agent.store.ranges.PIECE", 200_000)
    hub.ranges = False
    assert fetch(store(at(hub)), [FILE]) == [DATA]
    assert hub.gets() == 1


def test_a_netrc_does_not_replace_the_token(
    hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Credentials that .netrc has for the same host are not what the hub gets."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    be_home(hub, monkeypatch)
    hub.token = TOKEN
    assert fetch(store("hub"), [FILE]) == [DATA]


def test_the_token_goes_to_the_hub_alone(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub gets the token; the host that the bytes come from and a mirror do not."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    be_home(hub, monkeypatch)
    hub.token = TOKEN
    with serve(Hub(files=dict(hub.files))) as cdn:
        hub.cdn = cdn.address
        assert fetch(store("hub"), [FILE]) == [DATA]
        assert all(headers.get("authorization") == f"Bearer {TOKEN}" for _, _, headers in hub.seen)
        assert cdn.gets() == 1
        assert all("authorization" not in headers for _, _, headers in cdn.seen)
    with serve(Hub(files=dict(hub.files))) as mirror:
        assert fetch(store(f"hub:{mirror.address}", folder="other"), [FILE]) == [DATA]
        assert all("authorization" not in headers for _, _, headers in mirror.seen)


@pytest.mark.parametrize("kind", ["head", "get", "cdn", "denied"])
def test_secrets_are_in_no_message(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Neither the token nor the signature of an address is in an error or a note."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    be_home(hub, monkeypatch)
    if kind == "head":
        hub.head = [(500, {})] * 9
    elif kind == "denied":
        hub.token = "hf_" + "anotheranother"
    elif kind == "get":
        hub.get = [(400, {})]
    notes = Notes()
    with serve(Hub(files=dict(hub.files), get=[(403, {})] * 9)) as cdn:
        hub.cdn = cdn.address if kind == "cdn" else None
        with pytest.raises(FetchFailed) as caught:
            fetch(store("hub", progress=notes), [FILE])
    text = str(caught.value) + "".join(notes.notes)
    assert TOKEN not in text
    assert "c0ffee" not in text
    assert "Signature" not in text


def test_an_expired_address_is_replaced(hub: Hub, store: Opener) -> None:
    """A signed address that stops working in the middle is asked for anew, and the transfer goes on where it was."""
    with serve(Hub(files=dict(hub.files), cut=2_000_000)) as cdn:
        hub.cdn = cdn.address
        notes = Notes()
        cdn.get = [(403, {})]
        assert fetch(store(at(hub), progress=notes), [FILE]) == [DATA]
        assert any("link_expired" in note for note in notes.notes)
        assert cdn.sent == len(DATA)


def test_401_lists_the_possibilities(hub: Hub, store: Opener) -> None:
    """The hub says 401 for what is missing, private or gated, so the message says all three, and what was sent."""
    hub.token = TOKEN
    with pytest.raises(FetchFailed, match=r"private, gated, or does not exist.*no token was sent.*HF_TOKEN"):
        fetch(store(at(hub)), [FILE])


def test_a_token_that_is_no_longer_valid_is_suspected(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub refuses a bad token for public files, too: the message says so, and one request is enough."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    be_home(hub, monkeypatch)
    hub.token = "hf_" + "anotheranother"
    with pytest.raises(FetchFailed, match=r"token that was sent does not open it.*if the repository is public, remove"):
        fetch(store("hub"), [FILE])
    assert hub.requests.total() == 1


def test_a_wrong_clock_is_mentioned(hub: Hub, store: Opener) -> None:
    """A refused signature with a clock that is 20 minutes off says so."""
    hub.date = -1200
    hub.get = [(403, {})]
    with pytest.raises(FetchFailed, match=r"clock of this machine is \+120\d s off"):
        fetch(store(at(hub)), [FILE])


@pytest.mark.parametrize("how", ["option", "variable"])
def test_offline_asks_nobody(hub: Hub, store: Opener, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """--offline and HF_HUB_OFFLINE: no request is made and the message says why."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", how == "variable")
    with pytest.raises(FetchFailed, match=": offline: "):
        fetch(store(at(hub), offline=how == "option"), [FILE])
    assert hub.requests.total() == 0
