import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Apache Kafka's tools one after the other in one JVM. A line of standard input is a timeout in milliseconds, what
 * the tool reads, a main class and its arguments, separated by tabs, all but the timeout in base64. The line that
 * answers it is the exit status (124 after the timeout), what was printed to standard output, and what was printed to
 * it and to standard error, in base64.
 */
public class ToolRunner {
    static final int TIMED_OUT = 124;

    /** Keeps what is printed until it is taken, and passes it on to another one. */
    static final class Printed extends OutputStream {
        private final ByteArrayOutputStream kept = new ByteArrayOutputStream();
        private final OutputStream next;

        Printed(OutputStream next) {
            this.next = next;
        }

        @Override
        public synchronized void write(int value) {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int length) {
            kept.write(bytes, start, length);
            try {
                next.write(bytes, start, length);
            } catch (java.io.IOException impossible) {
                throw new AssertionError(impossible);
            }
        }

        synchronized String take() {
            String taken = Base64.getEncoder().encodeToString(kept.toByteArray());
            kept.reset();
            return taken;
        }
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // The same two for all tools: Scala's Console keeps those that it finds at first.
        Printed all = new Printed(OutputStream.nullOutputStream());
        Printed out = new Printed(all);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(all, true, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            System.setIn(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
            String[] command = Arrays.stream(words).skip(2).map(ToolRunner::decoded).toArray(String[]::new);
            int status = run(command, Long.parseLong(words[0]));
            answers.println(status + "\t" + out.take() + "\t" + all.take());
            answers.flush();
        }
    }

    static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    /** Runs a tool in a thread of its own, which stands still from the moment on that it would end the process. */
    static int run(String[] command, long timeoutMs) throws Exception {
        CompletableFuture<Integer> status = new CompletableFuture<>();
        Exit.Procedure exit = (code, message) -> {
            status.complete(code);
            LockSupport.park();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> {
            try {
                String[] arguments = Arrays.copyOfRange(command, 1, command.length);
                Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
                status.complete(0);
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                status.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        try {
            return status.get(timeoutMs, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            return TIMED_OUT;
        }
    }
}
