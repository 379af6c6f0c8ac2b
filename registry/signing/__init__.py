"""Artifacts signed by the key of who publishes them (Ed25519, RFC 8032; DSSE and in-toto say what is signed), and refused
where no trusted key has signed them.
"""
