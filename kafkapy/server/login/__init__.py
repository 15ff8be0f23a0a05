"""Logins as configured: builds what `security/` decides with, and fetches what that needs over the network.

authentication.py    mechanisms, users and limits of each listener: begin here
authorization.py acl_text.py    the authorizer and its audit log; an ACL in words
token_logins.py      logins by delegation tokens
bearer_tokens.py jwks.py    validation of OAUTHBEARER tokens; the keys that sign them, kept up to date
node_login.py node_token.py token_endpoint.py client_assertion.py    this node's own logins to others
web_request.py       one https request with limits

Called by `server/listeners.py` and `server/peers.py`; logins themselves are driven by `serving/login_gate.py`.
"""
