"""How fast it is: `python -m tests.bench enqueue|bulk|drain|latency|claim|http`, one JSON line for each measurement.

What is measured:
- `enqueue`: jobs_s of `jobs.enqueue("noop")` one by one, each its own transaction; latencies of the call.
- `bulk`: jobs_s of `enqueue_many` in transactions of a thousand.
- `drain`: worker processes (`manage.py runworker`) over a filled queue. `jobs_s` runs from the moment at which every
  worker process has got its first job to the start of the last one (`--type tick`, stamped by the handler into a
  shared file; no query is added), and `db_jobs_s` to the last completion that the database stored. With `--type noop`
  (default) both moments are the database's: from the first claim to the last completion.
- `latency`: from the return of `enqueue` to the start of the handler in an otherwise idle worker.
- `claim`: claims of ten under each noise, by time and by buffers, and the ratio to empty.
- `http`: requests to one web process by clients that keep their connections: a probe, a read, an enqueue, a batch;
  `of_probe` is the ratio to the probe of the same run, the best of three
  rounds each, and `cpu_ms` what the server itself computed for one request.

Times on a shared machine move: compare within one run.
"""
