"""Certificates made for a test or a benchmark, by openssl."""

import subprocess
from pathlib import Path


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a key and a certificate for 127.0.0.1; return the file with both and that of the certificate alone."""
    directory.mkdir(parents=True, exist_ok=True)
    keys, certificate = directory / "keys.pem", directory / "certificate.pem"
    if keys.exists():
        return keys, certificate
    key = directory / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    keys.write_text(key.read_text() + certificate.read_text())
    return keys, certificate
