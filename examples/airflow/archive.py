"""A DAG of Airflow 3 that moves the messages of an exchange's queues into a Parquet table every ten minutes.

Put this file into Airflow's folder of DAGs. The worker that runs the task needs Java,
``pip install '/path/to/checkout[spark]'`` and these variables: JUMPMQ_URL, such as http://guest:guest@broker:15672,
EXCHANGE, and TABLE, the path of the table.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "archive",
    schedule="*/10 * * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a run takes all present messages
    max_active_runs=1,  # a second run would be refused during the first
):
    BashOperator(
        task_id="archive",
        bash_command='jumpmq pipeline archive "$EXCHANGE" "$TABLE" --url "$JUMPMQ_URL"',
        append_env=True,
        retries=3,  # a retry continues the same micro-batch: a message is in the table once
        retry_delay=timedelta(seconds=30),
    )
