"""Certificates for servers of the tests' own, made anew each time."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)


class Authority:
    """A certificate authority, and what it signs, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("the authority")
        self._write("ca.pem", self._signed(self._name, self._key, ca=True))

    def sign(self, name: str) -> str:
        """A file with the certificate of a name and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return self._write(f"{name}.pem", private + self._signed(_name(name), key, ca=False))

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> bytes:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - dt.timedelta(days=1))
            .not_valid_after(NOW + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)

    def _write(self, name: str, data: bytes) -> str:
        (self.folder / name).write_bytes(data)
        return name


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
