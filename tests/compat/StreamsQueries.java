import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Counts the words of a topic into a store, and answers for all instances of the application (interactive queries):
 * /count?WORD is answered from the own store, or by the instance that StreamsMetadata names, asked over HTTP;
 * /owner?WORD says "active standby,... partition" of a key, /instances what each has: "host:port active... / standby...".
 * Arguments: bootstrap, application id, topic, state directory, own port, then NAME=VALUE of configuration.
 */
class StreamsQueries {
    private static final String STORE = "counts";
    private final KafkaStreams streams;
    private final int port;
    private final HttpClient client = HttpClient.newHttpClient();

    StreamsQueries(KafkaStreams streams, int port) {
        this.streams = streams;
        this.port = port;
    }

    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2])
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as(STORE));
        int port = Integer.parseInt(args[4]);
        Properties config = new Properties();
        config.putAll(Map.of(
            "bootstrap.servers", args[0],
            "application.id", args[1],
            "state.dir", args[3],
            "application.server", "127.0.0.1:" + port,
            "commit.interval.ms", "100",
            "statestore.cache.max.bytes", "0",
            "default.key.serde", Serdes.String().getClass(),
            "default.value.serde", Serdes.String().getClass()));
        for (int index = 5; index < args.length; index++) {
            config.put(args[index].split("=")[0], args[index].split("=")[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", new StreamsQueries(streams, port)::answer);
        server.start();
        streams.start();
        Thread.currentThread().join();
    }

    private void answer(HttpExchange exchange) throws IOException {
        String answer;
        int status = 200;
        try {
            String word = exchange.getRequestURI().getQuery();
            answer = switch (exchange.getRequestURI().getPath()) {
                case "/count" -> count(word);
                case "/local" -> local(word);
                case "/owner" -> owner(word);
                default -> instances();
            };
        } catch (Exception error) { // the store moves, the other instance is gone: to be asked again
            status = 503;
            answer = error.toString();
        }
        byte[] text = answer.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, text.length == 0 ? -1 : text.length);
        exchange.getResponseBody().write(text);
        exchange.close();
    }

    private String count(String word) throws Exception {
        KeyQueryMetadata found = streams.queryMetadataForKey(STORE, word, Serdes.String().serializer());
        if (found.activeHost().port() == port) {
            return local(word);
        }
        URI address = URI.create("http://127.0.0.1:" + found.activeHost().port() + "/local?" + word);
        HttpResponse<String> response =
            client.send(HttpRequest.newBuilder(address).build(), HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(response.body());
        }
        return response.body();
    }

    private String local(String word) {
        ReadOnlyKeyValueStore<String, Long> store =
            streams.store(StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
        return String.valueOf(store.get(word));
    }

    private String owner(String word) {
        KeyQueryMetadata found = streams.queryMetadataForKey(STORE, word, Serdes.String().serializer());
        String standby = found.standbyHosts().stream().map(host -> "" + host.port()).sorted().collect(Collectors.joining(","));
        return found.activeHost().port() + " " + standby + " " + found.partition();
    }

    private String instances() {
        Map<Integer, String> byPort = new TreeMap<>();
        for (StreamsMetadata each : streams.metadataForAllStreamsClients()) {
            byPort.put(each.port(), each.port() + " " + new TreeSet<>(each.topicPartitions().stream().map(Object::toString).toList())
                + " " + new TreeSet<>(each.standbyTopicPartitions().stream().map(Object::toString).toList())
                + " " + new TreeSet<>(each.stateStoreNames()) + " " + new TreeSet<>(each.standbyStateStoreNames()));
        }
        return String.join("\n", byPort.values());
    }
}
