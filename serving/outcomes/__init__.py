"""Takes the right labels of earlier answers over HTTP, keeps them on disk, and raises alarms. Knows no system.

What is kept by default holds nothing that people wrote or sent: ids, versions, classes, confidences, tenants and times
alone.
"""
