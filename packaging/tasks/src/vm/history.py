"""Fills the catalog of a server that is stopped, and tells what stands in it, so that two machines can
be compared. Runs inside a guest with nothing but Python's own library.

    history.py make PEOPLE EVENTS
    history.py tell
"""

import hashlib
import sqlite3
import sys
import time

CATALOG = "/var/lib/fardel/catalog.sqlite"
# The product forgets events after thirty days.
DAYS = 20


def make(users, events):
    catalog = sqlite3.connect(CATALOG, isolation_level=None)
    now = int(time.time() * 1000)
    begun = now - DAYS * 86_400_000
    # Nobody would mourn it: the guest is thrown away.
    catalog.execute("pragma synchronous = off")
    catalog.execute("pragma cache_size = -200000")
    catalog.execute("begin")
    catalog.execute(
        """
        with recursive n(i) as (select 1 union all select i + 1 from n where i < :users)
        insert into user (id, name, language, theme, time_zone, suspended, password, created_at, generation)
        select randomblob(16), 'user-' || i, 'ko', 'system', 'Asia/Seoul', 0,
               '$argon2id$v=19$m=19456,t=2,p=1$' || hex(randomblob(16)) || '$' || hex(randomblob(16)),
               :begun + i, 1
        from n
        """,
        {"users": users, "begun": begun},
    )
    # Every user is a member of the project that the catalog begins with.
    catalog.execute(
        """
        insert into membership (user, project, role)
        select user.id, project.id, 'member'
        from user, project
        where user.name like 'user-%' and project.name = 'default'
        """
    )
    catalog.execute(
        """
        with recursive n(i) as (select 1 union all select i + 1 from n where i < :events)
        insert into event (at, actor, topic, object, owner, code, before, after)
        select :begun + i * :step, 'user-' || (i % :users + 1), 'sessions',
               -- Ids sort by time, as the product's do; four events speak of one session.
               printf('019a%028x', i / 4), null, 'session.running', 'preparing', 'running'
        from n
        """,
        {"users": users, "events": events, "begun": begun, "step": (now - begun) // events},
    )
    catalog.execute("commit")
    print(f"{users} users and {events} events in {time.time() - now / 1000:.0f} s", flush=True)


def tell():
    catalog = sqlite3.connect(f"file:{CATALOG}?mode=ro", uri=True)
    everybody = hashlib.sha256()
    count = 0
    for row in catalog.execute(
        """
        select user.name, coalesce(role_grant.role, membership.role), hex(user.id), password
        from user
        left join role_grant on role_grant.user = user.id
        left join membership on membership.user = user.id
        where removed_at is null
        order by user.name
        """
    ):
        everybody.update(repr(row).encode())
        count += 1
    print(f"users: {count}, {everybody.hexdigest()}")
    # Those that were made: others come while servers work.
    events = catalog.execute(
        """
        select count(*), sum(at), sum(sequence), min(object), max(object)
        from event
        where actor like 'user-%' and code = 'session.running'
        """
    ).fetchone()
    print("events:", *events)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(int(sys.argv[2]), int(sys.argv[3]))
    else:
        tell()
