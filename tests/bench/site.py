"""Fills the catalog of a server that is stopped: users, projects, who is where, and events of sessions.

    site.py CATALOG USERS PROJECTS EVENTS
"""

import sqlite3
import sys
import time

# The product forgets events after thirty days.
DAYS = 20


def make(path, users, projects, events):
    catalog = sqlite3.connect(path, isolation_level=None)
    now = int(time.time() * 1000)
    begun = now - DAYS * 86_400_000
    # Nothing of it outlives the bench.
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
    catalog.execute(
        """
        with recursive n(i) as (select 1 union all select i + 1 from n where i < :projects)
        insert into project (id, domain, name, title, state, generation)
        select randomblob(16), domain.id, 'project-' || i, 'Project number ' || i, 'active', 1
        from n, domain
        where domain.name = 'default'
        """,
        {"projects": projects},
    )
    # Each user is in the project that the catalog begins with, and in three others, the first tenth as leads.
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
        with k(i) as (values (0), (1), (2)),
             u as (select id, cast(substr(name, 6) as integer) as i from user where name like 'user-%'),
             p as (select id, cast(substr(name, 9) as integer) as i from project where name like 'project-%')
        insert into membership (user, project, role)
        select u.id, p.id, iif(u.i % 10 = 0, 'lead', 'member')
        from u, k, p
        where p.i = (u.i * 7 + k.i * 61) % :projects + 1
        """,
        {"projects": projects},
    )
    catalog.execute(
        """
        create temp table of_user as
        select cast(substr(user.name, 6) as integer) as i, user.id, user.domain, project.id as project
        from user, project
        where user.name like 'user-%' and project.name = 'default'
        """
    )
    catalog.execute("create unique index temp.of_user_by_number on of_user (i)")
    catalog.execute(
        """
        with recursive n(i) as (select 1 union all select i + 1 from n where i < :events)
        insert into event (at, actor, topic, object, owner, code, before, after, domain, project)
        select :begun + n.i * :step, 'user-' || of_user.i, 'sessions',
               -- Ids sort by time, as the product's do; four events speak of one session.
               printf('019a%028x', n.i / 4), of_user.id, 'session.running', 'preparing', 'running',
               of_user.domain, of_user.project
        from n
        join of_user on of_user.i = n.i / 4 % :users + 1
        """,
        {"users": users, "events": events, "begun": begun, "step": (now - begun) // events},
    )
    catalog.execute("commit")
    for table, least in (("user", users), ("project", projects), ("membership", 4 * users), ("event", events)):
        (count,) = catalog.execute(f"select count(*) from {table}").fetchone()
        if count < least:
            sys.exit(f"{table} has {count} rows, fewer than {least}")


if __name__ == "__main__":
    make(sys.argv[1], *(int(number) for number in sys.argv[2:5]))
