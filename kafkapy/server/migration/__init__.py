"""Finds what prevents a cluster of Apache Kafka from becoming kafkapy's, node by node: `kafkapy cluster check`.

survey.py      the data that was collected about a cluster
findings.py    the findings that follow from it, by a plain function

Called by `cli/cluster_check.py`; `cli/cluster_survey.py` collects the survey. docs/migration.md has the steps.
"""
