"""Jobs and lanes as tools of the Model Context Protocol: on the same services, keys and refusals as the REST API.

`tools` says what a tool is, `job_tools` and `lane_tools` which there are, `server` speaks the protocol by the official
SDK, `stdio` and `http` are its two doors. Without the package `mcp` nothing here is imported (D1 to D15).
"""
