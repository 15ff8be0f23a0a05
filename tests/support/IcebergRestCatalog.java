import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.CatalogProperties;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Apache Iceberg's own REST catalogue over SQLite, on loopback: port, database file, warehouse. */
public class IcebergRestCatalog {
    public static void main(String[] arguments) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.initialize("rest", Map.of(
            CatalogProperties.URI, "jdbc:sqlite:" + arguments[1],
            CatalogProperties.WAREHOUSE_LOCATION, arguments[2],
            "jdbc.schema-version", "V1"));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        server.setHandler(context);
        server.start();
        System.out.println("ready");
        server.join();
    }
}
