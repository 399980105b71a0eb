"""Named identities that take turns at a pool of desks: a ledger of leases, the desks, the turns."""
