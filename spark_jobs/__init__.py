"""Market data on Spark: jobs over the standard Kafka source and sink, for kafkapy or any Kafka.

    feed ----> topic trades ----> silver ----> topic silver_trades ----> gold, live ----> topics of bars, Parquet
               topic depth -----> book ------> topic book_seconds, with silver_trades ---> fills
               trades, depth ---> quotes ---> topic ticks
               all topics ------> bronze (archive) ----> audit, backfill, replay

Each job is a module with `run(config)`, started by `python -m spark_jobs JOB --config file.yaml`. `JOB --help` lists
its keys; `--set KEY=VALUE` overrides the file. A pipeline on a laptop, each command in a shell of its own, the brokers'
address in b.yaml (bootstrap_servers: 127.0.0.1:9092):

    kafkapy start
    python -m spark_jobs feed --config b.yaml --set speed=1 --set state=feed.state
    python -m spark_jobs silver --config b.yaml --set topics=[trades] --set checkpoint=c/silver
    python -m spark_jobs live --config b.yaml --set topics=[silver_trades] --set checkpoint=c/live

README.md in this folder walks through all of them.

Under spark-submit the main file is spark_jobs/__main__.py, with the packages spark_jobs and tools on PYTHONPATH or in
--py-files; master and connector (--packages or --jars, see connector.coordinates) are then spark-submit's.
"""
