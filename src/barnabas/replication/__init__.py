"""One partition among its replicas: who leads, what is committed, who waits for it, which fetch sessions are open."""
