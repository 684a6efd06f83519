-- How many orders of each customer wait in the queues now; looking takes nothing away.
{{ config(materialized="table") }}

select cast(routing_key as string) as customer, count(*) as orders
from waiting_orders
group by 1
