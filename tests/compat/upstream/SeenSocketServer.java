package org.apache.kafka.common.test;

import kafka.network.SocketServer;
import org.apache.kafka.common.network.ListenerName;
import org.objenesis.ObjenesisStd;

/** A node's sockets as far as one can see them from outside its process: the ports. */
class SeenSocketServer extends SocketServer {
    private NodeProcess node;

    /** Never called: see of(). */
    private SeenSocketServer() {
        super(null, null, null, null, null, null, null);
    }

    static SocketServer of(NodeProcess node) {
        SeenSocketServer made = new ObjenesisStd().newInstance(SeenSocketServer.class);
        made.node = node;
        return made;
    }

    @Override
    public int boundPort(ListenerName listener) {
        return node.port(listener.value());
    }

    @Override
    public kafka.network.RequestChannel dataPlaneRequestChannel() {
        throw Seen.inside("SocketServer.dataPlaneRequestChannel");
    }
}
