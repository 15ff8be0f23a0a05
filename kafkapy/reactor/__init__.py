"""Sockets: accepts connections, moves their bytes, and runs handlers, on one event loop for each node.

reactor.py acceptor.py processor.py    listeners, accepting, and the owner of each connection: begin here
link.py rest.py    the driver of one connection, which runs `protocol/connection.py`; why it is not reading
turn_queue.py pending_request.py throttle.py    turns within a pass of the loop; waiting handlers; muted connections
receiving.py request_memory.py stall_watch.py    large frames, bounded memory for requests, limits of stalled frames
byte_account.py    bounded memory for unread responses, logins and TLS handshakes
regions.py region_sender.py read_ahead.py    records from files to the socket
limits.py connection_quotas.py ip_rates.py    bounds
socket_channel.py connector.py counted_channel.py    channels on sockets; outbound connections; counted bytes
tls.py tls_records.py tls_handshake.py tls_admission.py tls_connector.py    TLS as a channel over a channel
io_pool.py helper.py helper_main.py    threads for calls that block; a process for long Python code

Built by `server/client_edge.py`, which passes the router as a callable; driven by the event loop.
"""
