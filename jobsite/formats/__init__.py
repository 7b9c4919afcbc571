"""How the site writes moments, by language: Django's FORMAT_MODULE_PATH."""
