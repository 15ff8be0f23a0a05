"""A Spark session with the Kafka connector, quiet and sized for a laptop."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.connector import jars


def local_session(name: str, *, cores: str = "*", shuffle_partitions: int = 4) -> SparkSession:
    """Return a session on local[cores], bound to loopback, with the connector's jars on its classpath."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    session: SparkSession = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.jars", ",".join(str(jar) for jar in jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(shuffle_partitions))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_settings}")
        .getOrCreate()
    )
    return session
