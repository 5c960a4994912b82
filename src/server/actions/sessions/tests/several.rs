//! A session of several containers, as its user launches, sees and enters it.

use super::*;

fn pair(cpu: u32) -> LaunchRequest {
    LaunchRequest {
        containers: 2,
        resources: api::sessions::Resources {
            cpu: Some(CpuShare(cpu)),
            ..Default::default()
        },
        ..named("pair")
    }
}

#[tokio::test]
async fn a_session_of_several_containers_asks_for_all_of_them_at_once() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    // The node has four cores: two of two fit, two of three do not.
    let refused = preview(&server, &mina, pair(300)).await;
    assert_eq!(code(refused), "cpu.too-large");
    let session = one(&server, &mina, pair(200)).await.unwrap();
    assert_eq!(
        (session.containers, session.resources.cpu),
        (2, CpuShare(200))
    );
    carry_out(&server, session.id, None);
    let node = server.node();
    let held = server.catalog().read_now("look", |view| {
        let world = view.world()?;
        let row = world.session(session.id).expect("it lives");
        let places: Vec<_> = row
            .containers()
            .iter()
            .map(|one| (one.index, one.node))
            .collect();
        Ok((places, world.used()[&node].cpu))
    });
    assert_eq!(held.unwrap(), (vec![(0, node), (1, node)], CpuShare(400)));
    // The same again is asked for by what one container has.
    let again = duplicate(&server, &mina, "pair").await.unwrap();
    assert_eq!(
        (again.containers, again.resources.cpu),
        (2, Some(CpuShare(200)))
    );
    let resized = resize(&server, &mina, "pair", cores(100), None).await;
    assert_eq!(code(resized), "containers.resize");
}

#[tokio::test]
async fn a_container_is_entered_by_its_name() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, pair(100)).await.unwrap();
    for (text, index) in [
        ("pair", 0),
        ("pair.main1", 0),
        ("pair.sub1", 1),
        ("mina+pair.sub1", 1),
    ] {
        let ticket = enter_by_name(&server, &mina, text).await.unwrap();
        assert_eq!(
            (ticket.container.session, ticket.container.index),
            (session.id, index),
            "{text}"
        );
    }
    for text in ["pair.sub2", "mina+pair.sub2"] {
        let entered = enter_by_name(&server, &mina, text).await;
        assert_eq!(code(entered), "container.not-found", "{text}");
    }
    // What is no name of a container is a part of the session's, which has none such.
    for text in ["pair.sub01", "pair.sub0", "pair.x", "pair."] {
        let entered = enter_by_name(&server, &mina, text).await;
        assert_eq!(code(entered), "session.not-found", "{text}");
    }
    let ticket = read_logs(&server, &mina, "pair").await.unwrap();
    assert!(ticket.within(Some("sub")).is_err());
}
