"""TLS as configured: key stores and settings become contexts of OpenSSL, and are renewed while the node runs.

listeners.py           the TLS settings of a node's listeners, and their changes (KIP-226): begin here
contexts.py            an ssl.SSLContext for a server's or a client's side
key_stores.py          keys and certificates from PEM, PKCS12 and JKS files
dev_certificates.py    a certificate authority for development and tests

Called by `server/listeners.py` and `server/peers.py`; `reactor/tls.py` uses the contexts.
"""
