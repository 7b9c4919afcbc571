"""The console: server-rendered pages for people, behind a login, readable without JavaScript.

One module a page. A page reads the request, asks selectors or one service, and renders; what a person may do is a
permission of Django's. Pages stand outside of every tenant: they are the operators' view of the whole site.
"""
