"""Count evidence inside a Spark cluster: partitions are counted where they are, rows stay there.

Run it with ``spark-submit spark_evidence.py visits.parquet schema.json all.evidence`` where dprl is
installed on the executors; then ``dprl fit all.evidence --n-min 20 --no-plan``.
"""

import sys

import dprl
from dprl.evidence import count_batches, from_batches

COLUMNS = {
    "episode": "patient", "time": "day", "state": "situation", "action": "treatment",
    "reward": "outcome",
}  # fmt: skip


def evidence_of(frame, schema, columns, k=10, site=""):
    """The evidence of a Spark data frame; every patient's rows go to one partition first."""
    whole_patients = frame.repartition(columns.get("group") or columns["episode"])
    counted = whole_patients.mapInArrow(
        count_batches(schema, **columns), "evidence binary, groups binary"
    )
    return from_batches(counted.collect(), k=k, site=site)


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    table, schema, out = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    counted = evidence_of(spark.read.parquet(table), dprl.SiteSchema.load(schema), COLUMNS)
    counted.save(out)
    print(counted.explain())
