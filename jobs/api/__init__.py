"""The HTTP edge: read the request, call one service, shape the answer. Decisions about jobs live below."""
