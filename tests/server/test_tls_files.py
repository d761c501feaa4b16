"""The files of TLS: what is said of those that will not do, and that nobody is cut off when they are read again."""

import signal
import ssl
import subprocess
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import mqks.testing
from mqks.server.config import Config, ConfigError
from mqks.server.tls import Tls
from tests.certificates import Authority
from tests.running import MQKSD, PATIENCE, Connection, RunningBroker, running_broker


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def shown(connection: Connection) -> bytes | None:
    """The certificate that the broker showed."""
    tls = connection._socket
    assert isinstance(tls, ssl.SSLSocket)
    return tls.getpeercert(binary_form=True)


def reload(broker: RunningBroker, regex: str) -> None:
    broker.process.send_signal(signal.SIGHUP)
    assert broker.wait_for_log(regex), broker.log


# ── read again ──


def test_a_new_certificate_is_for_new_connections_and_the_others_go_on(authority: Authority) -> None:
    context = authority.context()
    with (
        running_broker(f"--tls-cert={authority.issue()}") as broker,
        closing(Connection(broker.port, context)) as old,
    ):
        assert old.ask("c1 consume --confirm q1 e1") == "c1 ok "
        authority.issue()
        reload(broker, "new connections get the certificate of .*server.pem")
        with closing(Connection(broker.port, context)) as new:
            assert shown(new) != shown(old)
            assert new.ask("m1 publish --confirm e1 hello") == "m1 ok "
        assert old.line() == b"c1 ok m1 event=e1 hello"
        assert old.ask("p1 ping still here") == "p1 ok still here"


@pytest.mark.parametrize("broken", ["", "nonsense", "gone", "the key of another", "a curve that clients do not know"])
def test_files_that_will_not_do_leave_the_old_ones_in_use(authority: Authority, broken: str) -> None:
    context = authority.context()
    cert, key = authority.issue_apart("server")
    with (
        running_broker(f"--tls-cert={cert}", f"--tls-key={key}") as broker,
        closing(Connection(broker.port, context)) as old,
    ):
        if broken == "gone":
            cert.unlink()
        elif broken == "the key of another":
            key.write_bytes(authority.issue_apart("other")[1].read_bytes())
        elif broken == "a curve that clients do not know":
            both = of_an_unknown_curve(cert.parent).read_bytes()
            cert.write_bytes(both)
            key.write_bytes(both)
        else:
            cert.write_text(broken)
        reload(broker, "error the certificate stays the old one: --tls-cert ")
        with closing(Connection(broker.port, context)) as new:
            assert shown(new) == shown(old)
            assert new.ask("p1 ping here") == "p1 ok here"
        assert old.ask("p1 ping still here") == "p1 ok still here"
        mended, its_key = authority.issue_apart("mended")
        mended.rename(cert)
        its_key.rename(key)
        reload(broker, "new connections get")
        with closing(Connection(broker.port, context)) as new:
            assert shown(new) != shown(old)


def test_another_authority_for_clients(authority: Authority, tmp_path: Path) -> None:
    """Whoever is there stays; those of the authority that is no longer named are not let in again."""
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    ours = authority.context(authority.issue("ours.pem", "ours.example"))
    theirs = authority.context(other.issue("theirs.pem", "theirs.example"))
    named = tmp_path / "clients.pem"
    named.write_bytes(authority.file.read_bytes())
    with (
        mqks.testing.broker(tls_cert=authority.issue(), tls_ca=named) as broker,
        closing(Connection(broker.port, ours)) as old,
    ):
        assert old.ask("p1 ping here") == "p1 ok here"
        named.write_bytes(other.file.read_bytes())
        broker.reload()
        with closing(Connection(broker.port, theirs)) as new:
            assert new.ask("p1 ping here") == "p1 ok here"
        with pytest.raises(ssl.SSLError, match="ALERT"), closing(Connection(broker.port, ours)) as refused:
            refused.ask("p1 ping here")
        assert old.ask("p1 ping still here") == "p1 ok still here"


def test_the_url_says_that_it_is_tls(authority: Authority) -> None:
    with mqks.testing.broker(tls_cert=authority.issue(), http=True) as broker:
        assert broker.url == f"mqkss://127.0.0.1:{broker.port}"
        assert broker.http_url.startswith("https://127.0.0.1:")
    with mqks.testing.broker(tls_cert=None) as broker:
        assert broker.url == f"mqks://127.0.0.1:{broker.port}"


# ── at a start ──


def with_passphrase(folder: Path) -> Path:
    issued = trustme.CA().issue_cert("localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    path = folder / "sealed.pem"
    path.write_bytes(sealed + issued.cert_chain_pems[0].bytes())
    return path


def of_an_unknown_curve(folder: Path) -> Path:
    """With its key, which loads as any other does."""
    key = ec.generate_private_key(ec.SECP256K1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "curve.pem"
    path.write_bytes(text + made.public_bytes(serialization.Encoding.PEM))
    path.chmod(0o600)
    return path


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


BROKEN = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"
Flags = Callable[[Authority, Path], list[str]]
WRONG: dict[str, tuple[Flags, str]] = {
    "no certificate": (
        lambda authority, _: [f"--tls-key={authority.issue()}"],
        "--tls-key is of no use without a certificate; give --tls-cert too",
    ),
    "no certificate, but of clients": (
        lambda authority, _: [f"--tls-ca={authority.file}"],
        "--tls-ca is of no use without a certificate; give --tls-cert too",
    ),
    "missing": (
        lambda _, folder: [f"--tls-cert={folder / 'missing.pem'}"],
        "--tls-cert {folder}/missing.pem cannot be read: No such file or directory",
    ),
    "a folder": (
        lambda _, folder: [f"--tls-cert={folder}"],
        "--tls-cert {folder} cannot be read: Is a directory",
    ),
    "no PEM": (
        lambda _, folder: [f"--tls-cert={written(folder / 'x', 'hello')}"],
        "--tls-cert {folder}/x has no certificate in PEM",
    ),
    "no key": (
        lambda authority, _: [f"--tls-cert={authority.issue_apart('a')[0]}"],
        "--tls-key {folder}/a.crt has no private key in PEM",
    ),
    "key of another": (
        lambda authority, _: [
            f"--tls-cert={authority.issue_apart('a')[0]}",
            f"--tls-key={authority.issue_apart('b')[1]}",
        ],
        "--tls-cert {folder}/a.crt, --tls-key {folder}/b.key: it is not the key of the certificate",
    ),
    "passphrase": (
        lambda _, folder: [f"--tls-cert={with_passphrase(folder)}"],
        "the key of --tls-cert has a passphrase; give one without, in a file for the broker's eyes only",
    ),
    "a curve that clients do not know": (
        lambda _, folder: [f"--tls-cert={of_an_unknown_curve(folder)}"],
        "--tls-cert {folder}/curve.pem: clients cannot speak TLS with it: no shared cipher",
    ),
    "broken certificates of clients": (
        lambda authority, folder: [f"--tls-cert={authority.issue()}", f"--tls-ca={written(folder / 'x', BROKEN)}"],
        "--tls-ca {folder}/x: ",
    ),
}


@pytest.mark.parametrize(("flags", "said"), WRONG.values(), ids=WRONG)
def test_one_line_says_what_is_wrong(authority: Authority, tmp_path: Path, flags: Flags, said: str) -> None:
    config = Config.load(flags(authority, tmp_path), {})
    with pytest.raises(ConfigError) as wrong:
        Tls.of(config)
    assert str(wrong.value).startswith(said.format(folder=tmp_path)) and "\n" not in str(wrong.value)


@pytest.mark.parametrize("wrong", ["missing", "passphrase"])  # of which the second must not be asked for
def test_mqksd_says_it_and_ends(authority: Authority, tmp_path: Path, wrong: str) -> None:
    flags, said = WRONG[wrong]
    ended = subprocess.run(
        [MQKSD, "--memory", "--port=0", "--no-http", *flags(authority, tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert ended.returncode == 2 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert f" error {said.format(folder=tmp_path)}" in ended.stderr, ended.stderr


def test_a_broker_for_tests_says_so_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"), mqks.testing.broker(tls_cert=tmp_path / "missing"):
        pass


def test_a_key_that_everybody_can_read_is_warned_of(authority: Authority) -> None:
    cert = authority.issue()
    cert.chmod(0o604)
    with running_broker(f"--tls-cert={cert}") as broker:
        assert broker.wait_for_log("warning every user of this machine can read the key in .*server.pem")
    cert.chmod(0o640)
    with running_broker(f"--tls-cert={cert}") as broker:
        assert "every user" not in broker.log


def test_a_certificate_that_clients_will_refuse_is_warned_of(authority: Authority) -> None:
    cert = authority.issue(ends=datetime(2020, 1, 1, tzinfo=UTC))
    with running_broker(f"--tls-cert={cert}") as broker:
        assert broker.wait_for_log(
            "warning clients will refuse the certificate of .*server.pem: certificate has expired"
        )
        authority.issue()
        reload(broker, "new connections get the certificate of .*server.pem")
        assert broker.log.count("clients will refuse") == 1
