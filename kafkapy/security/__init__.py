"""The identity and the rights of peers: authentication, authorization and quotas as pure functions and machines.

authentication.py sasl.py    the login of a connection; the interface of its mechanisms:
  plain.py scram.py oauthbearer.py    each with the server's and the client's side
  jwt_validator.py unsigned_jwt.py client_jwt.py    bearer tokens, validated, unsigned, and as their owner sees them
jaas.py log_text.py    login modules and their options; a peer's text, safe to log
authorizer.py standard_authorizer.py acl_index.py    called by every handler; decides by ACLs (KIP-801)
quotas.py rate.py      a client's quotas; rates as Kafka measures them
principal_mapping.py distinguished_name.py    from a certificate's subject to a user name
certificate.py der.py pem.py jks.py pkcs12.py    certificates, keys and their stores
cipher_suites.py       Java's names as OpenSSL's

Logins are driven by `serving/login_gate.py` and, for outbound ones, `runtime/peer.py`; quotas by `serving/quotas.py`.
"""
