"""Make key stores by Java's keytool: `python -m tools.record_key_stores` writes tests/golden/key_stores.

The password is storepass; keys.jks has a key password of its own, keypass. Certificates hold for a hundred years. Not
for any use but tests: the keys are public.
"""

import subprocess
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "tests" / "golden" / "key_stores"
NAMES = "san=dns:localhost,ip:127.0.0.1"


def keytool(store: str, *arguments: str, kind: str = "PKCS12", password: str = "storepass") -> None:
    where = ["-keystore", str(DIRECTORY / store), "-storetype", kind, "-storepass", password]
    subprocess.run(["keytool", *arguments, *where], check=True, capture_output=True)


def make_key(store: str, alias: str, algorithm: str, *more: str, kind: str = "PKCS12") -> None:
    size = ["-groupname", "secp256r1"] if algorithm == "EC" else ["-keysize", "2048"]
    name = ["-dname", f"CN={alias},OU=Tests,O=Kafkapy\\, Inc.", "-ext", NAMES, "-validity", "36500"]
    keytool(store, "-genkeypair", "-alias", alias, "-keyalg", algorithm, *size, *name, *more, kind=kind)


def sign(store: str, alias: str, authority: str) -> None:
    """Have a key's certificate issued by the authority of another store, and keep the chain."""
    request, issued = DIRECTORY / "request", DIRECTORY / "issued"
    root = DIRECTORY / "root"
    keytool(store, "-certreq", "-alias", alias, "-file", str(request))
    made = ["-gencert", "-alias", "ca", "-infile", str(request), "-outfile", str(issued), "-ext", NAMES]
    keytool(authority, *made, "-validity", "36500")
    keytool(authority, "-exportcert", "-alias", "ca", "-file", str(root), "-rfc")
    keytool(store, "-importcert", "-alias", "root", "-file", str(root), "-noprompt")
    keytool(store, "-importcert", "-alias", alias, "-file", str(issued), "-noprompt")
    for path in (request, issued):
        path.unlink()
    root.rename(DIRECTORY / "root.pem")


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for path in DIRECTORY.iterdir():
        path.unlink()
    make_key("ca.p12", "ca", "EC", "-ext", "bc:c")
    make_key("keys.p12", "broker", "EC")
    sign("keys.p12", "broker", "ca.p12")
    make_key("keys.jks", "broker", "EC", "-keypass", "keypass", kind="JKS")
    make_key("keys.jks", "broker-rsa", "RSA", "-keypass", "keypass", kind="JKS")
    make_key("keys.jceks", "broker", "EC", kind="JCEKS")
    for store, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
        keytool(store, "-importcert", "-alias", "ca", "-file", str(DIRECTORY / "root.pem"), "-noprompt", kind=kind)


if __name__ == "__main__":
    main()
