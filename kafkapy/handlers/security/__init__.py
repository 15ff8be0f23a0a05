"""APIs of logins, users, ACLs, client quotas and delegation tokens.

sasl_handshake.py sasl_authenticate.py    outside a login: refused (`serving/login_gate.py` has the login)
create_acls.py describe_acls.py delete_acls.py acl_requests.py    ACLs; shared by their requests
alter_user_scram_credentials.py describe_user_scram_credentials.py    users with SCRAM
alter_client_quotas.py describe_client_quotas.py    client quotas
create_delegation_token.py renew_delegation_token.py expire_delegation_token.py describe_delegation_token.py
token_requests.py    delegation tokens; shared by their requests

Called by `serving/router.py`. Changes are decided by `metadata/controller.py` on the active controller.
"""
