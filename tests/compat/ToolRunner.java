import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's tools one after the other in one JVM. A line of standard input is a main class and its arguments,
 * separated by tabs; the line that answers it is the exit status, a tab, and what was printed, in base64.
 */
public class ToolRunner {
    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            System.setIn(new ByteArrayInputStream(new byte[0]));
            int status = run(line.split("\t", -1));
            answers.println(status + "\t" + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }

    /** Runs a tool in a thread of its own, which stands still from the moment on that it would end the process. */
    static int run(String[] words) {
        CompletableFuture<Integer> status = new CompletableFuture<>();
        Exit.Procedure exit = (code, message) -> {
            status.complete(code);
            LockSupport.park();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> {
            try {
                String[] arguments = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
                status.complete(0);
            } catch (ReflectiveOperationException error) {
                error.printStackTrace();
                status.complete(1);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return status.join();
    }
}
