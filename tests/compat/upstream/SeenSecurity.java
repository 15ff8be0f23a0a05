package org.apache.kafka.common.test;

import java.util.Map;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.metadata.DelegationTokenData;
import org.apache.kafka.metadata.ScramCredentialData;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.authorizer.Authorizer;
import scala.Option;

/** The ACLs, credentials and tokens that a node has: those of its metadata log. */
class SeenSecurity {
    static Option<Plugin<Authorizer>> authorizer(NodeProcess node) {
        if (node.property("authorizer.class.name") == null)
            return Option.empty();
        Authorizer authorizer = Seen.as(Authorizer.class, call -> {
            if (!call.getMethod().getName().equals("acls"))
                throw Seen.inside(call);
            AclBindingFilter filter = call.getArgument(0);
            return image(node).acls().acls().values().stream().map(StandardAcl::toBinding).filter(filter::matches).toList();
        });
        return Option.apply(Plugin.wrapInstance(authorizer, null, "authorizer.class.name"));
    }

    static CredentialProvider credentials(NodeProcess node) {
        Map<ScramMechanism, Map<String, ScramCredentialData>> known = image(node).scram().mechanisms();
        CredentialProvider provider = new CredentialProvider(known.keySet().stream().map(ScramMechanism::mechanismName).toList(), tokens(node));
        known.forEach((mechanism, users) -> users.forEach((user, data) -> provider.updateCredential(mechanism, user, data.toCredential())));
        return provider;
    }

    static DelegationTokenCache tokens(NodeProcess node) {
        return Seen.as(DelegationTokenCache.class, call -> {
            if (!call.getMethod().getName().equals("tokens"))
                throw Seen.inside(call);
            return image(node).delegationTokens().tokens().values().stream().map(DelegationTokenData::tokenInformation).toList();
        });
    }

    private static MetadataImage image(NodeProcess node) {
        return MetadataOnDisk.read(node).cache().currentImage();
    }
}
