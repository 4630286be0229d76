// The steps of one draft, included by main.rs into a module per draft. The module defines what differs
// between drafts.

use std::error::Error;

use moqtap_codec::types::TrackNamespace;
use moqtap_codec::varint::VarInt;
use tokio::sync::mpsc;

use client::connection::{
    ClientConfig, Connection, ConnectionError, FramedRecvStream, RequestStream, TransportType,
};
use codec::data_stream::{FetchHeader, FetchObjectHeader, GroupOrder, SubgroupHeader, SubgroupObject};
use codec::message::{ControlMessage, Fetch, FetchOk, RequestError, SubscribeOk};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Objects per group.
const OBJECTS: u64 = 4;
/// A group that can only be fetched.
const STORED: u64 = 5;
/// The group sent to subscribers.
const LIVE: u64 = 9;
/// REQUEST_ERROR code for a FETCH without objects (§10.6).
const INVALID_RANGE: u64 = 0x11;
/// Subgroup header type (§11.4.2): subgroup 0, with priority, last in its group.
const SUBGROUP: u8 = 0x18;
/// Serialization flags (§11.4.4.1) for an object with group, object ID and priority, and for the
/// next one in its group.
const FIRST: u64 = 0x1c;
const NEXT: u64 = 0;

fn field(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn int(v: u64) -> VarInt {
    VarInt::from_u64_moqt(v)
}

fn namespace() -> TrackNamespace {
    TrackNamespace(vec![field("moqtap"), field("one")])
}

/// An object's payload, unique per object.
fn payload(group: u64, object: u64) -> Vec<u8> {
    (0..2000)
        .map(|i| (group * 31 + object * 7 + i) as u8)
        .collect()
}

async fn connect(addr: &str) -> Result<Connection> {
    let config = ClientConfig {
        draft: DRAFT,
        transport: TransportType::Quic,
        skip_cert_verification: true,
        ca_certs: Vec::new(),
        setup_parameters: Vec::new(),
    };
    Ok(Connection::connect(addr, config).await?)
}

/// Waits for REQUEST_OK.
async fn accepted(conn: &mut Connection, stream: &mut RequestStream, what: &str) -> Result<()> {
    match conn.recv_on_request_stream(stream).await? {
        ControlMessage::RequestOk(_) => Ok(()),
        other => Err(format!("{what} was answered with {other:?}").into()),
    }
}

/// Announces the namespace and answers the relay's requests. Sends the live group for each message
/// on `live`, and withdraws the namespace when the channel closes. Returns the number of FETCHes
/// that the relay forwarded.
async fn serve(conn: &mut Connection, mut live: mpsc::Receiver<()>) -> Result<usize> {
    let mut announced = conn.publish_namespace(namespace(), Vec::new()).await?;
    accepted(conn, &mut announced, "PUBLISH_NAMESPACE").await?;
    let mut held = Vec::new();
    let mut fetches = 0;
    loop {
        let (message, mut stream) = tokio::select! {
            request = conn.accept_request_stream() => request?,
            step = live.recv() => match step {
                Some(()) => {
                    send_live(conn).await?;
                    continue;
                }
                None => break,
            },
        };
        match message {
            ControlMessage::Subscribe(_) => {
                let ok = SubscribeOk {
                    track_alias: int(1),
                    parameters: Vec::new(),
                    track_properties: Vec::new(),
                };
                conn.respond_subscribe_ok(&mut stream, ok).await?;
            }
            ControlMessage::Fetch(fetch) => match stored_group(&fetch) {
                Some(group) => {
                    fetches += 1;
                    send_stored(conn, &mut stream, fetch.request_id, group).await?;
                }
                // SUBSCRIBE_OK reported no largest object, so there are no earlier groups to join.
                None => {
                    let refusal = RequestError {
                        error_code: int(INVALID_RANGE),
                        retry_interval: int(0),
                        reason_phrase: field("no such objects"),
                        redirect: None,
                    };
                    conn.respond_error(&mut stream, refusal).await?;
                }
            },
            other => return Err(format!("the relay asks for {other:?}").into()),
        }
        held.push(stream); // dropping it would cancel the request
    }
    announced.finish().await?;
    Ok(fetches)
}

async fn send_live(conn: &Connection) -> Result<()> {
    let header = SubgroupHeader {
        header_type: SUBGROUP,
        track_alias: int(1),
        group_id: int(LIVE),
        subgroup_id: int(0),
        publisher_priority: Some(128),
    };
    let mut stream = conn
        .open_subgroup_stream(&AnySubgroup(header))
        .await?;
    for id in 0..OBJECTS {
        let data = payload(LIVE, id);
        let object = SubgroupObject {
            object_id: int(id),
            extension_headers: Vec::new(),
            payload_length: VarInt::from_usize(data.len()),
            object_status: None,
            payload: data,
        };
        stream.write_subgroup_object(&object).await?;
    }
    Ok(stream.finish().await?)
}

async fn send_stored(
    conn: &mut Connection,
    stream: &mut RequestStream,
    id: VarInt,
    group: u64,
) -> Result<()> {
    let ok = FetchOk {
        end_of_track: 0,
        end_group: int(group),
        end_object: int(END_OBJECT),
        parameters: Vec::new(),
        track_properties: Vec::new(),
    };
    conn.respond_fetch_ok(stream, ok).await?;
    let header = AnyFetch(FetchHeader { request_id: id });
    let mut data = conn.open_fetch_stream(&header).await?;
    for id in 0..OBJECTS {
        let first = id == 0;
        let header = FetchObjectHeader {
            serialization_flags: flags(if first { FIRST } else { NEXT }),
            group_id_delta: first.then(|| int(group)),
            subgroup_id: None,
            object_id_delta: first.then(|| int(0)),
            publisher_priority: first.then_some(128),
            properties: no_properties(),
            payload_length: int(0), // write_fetch_object fills it in
        };
        data.write_fetch_object(&header, &payload(group, id))
            .await?;
    }
    Ok(data.finish().await?)
}

/// Reads a complete group from a fetch stream and compares every object.
async fn compare(data: &mut FramedRecvStream, group: u64) -> Result<()> {
    for id in 0..OBJECTS {
        let (object, got) = data.read_fetch_object().await?;
        if (object.group_id, object.object_id) != (group, id) || got != payload(group, id) {
            return Err(format!(
                "fetched {} bytes of {}:{} for {group}:{id}",
                got.len(),
                object.group_id,
                object.object_id
            )
            .into());
        }
    }
    match data.read_fetch_object().await {
        Err(ConnectionError::UnexpectedEnd) => Ok(()), // end of stream
        other => Err(format!("after group {group}: {other:?}").into()),
    }
}

/// Fetches a group and compares every object.
async fn fetch(conn: &mut Connection, group: u64) -> Result<()> {
    let mut request = request_group(conn, group).await?;
    match conn.recv_on_request_stream(&mut request).await? {
        ControlMessage::FetchOk(ok) if ok.end_group == int(group) => {}
        other => return Err(format!("FETCH of group {group} was answered with {other:?}").into()),
    }
    let (header, mut data) = conn.accept_fetch_stream().await?;
    match header {
        AnyFetch(header) if header.request_id == request.request_id() => {}
        other => return Err(format!("unexpected {other:?} on the fetch stream").into()),
    }
    data.begin_fetch_objects(GroupOrder::Ascending);
    compare(&mut data, group).await?;
    request.finish().await?;
    Ok(())
}

/// Runs the viewer's steps, concurrently with serve.
async fn watch(
    conn: &mut Connection,
    namespaces: &mut RequestStream,
    live: &mpsc::Sender<()>,
) -> Result<()> {
    match conn.recv_on_request_stream(namespaces).await? {
        ControlMessage::Namespace(told)
            if told.namespace_suffix == TrackNamespace(vec![field("one")]) => {}
        other => return Err(format!("got {other:?} instead of the new namespace").into()),
    }
    fetch(conn, STORED).await?;
    let mut subscription = conn
        .subscribe(namespace(), field("track"), Vec::new())
        .await?;
    match conn.recv_on_request_stream(&mut subscription).await? {
        ControlMessage::SubscribeOk(_) => {}
        other => return Err(format!("SUBSCRIBE was answered with {other:?}").into()),
    }
    live.send(()).await?;
    let (header, mut data) = conn.accept_subgroup_stream().await?;
    if header.group_id() != LIVE {
        return Err(format!("got {header:?}, not group {LIVE}").into());
    }
    for id in 0..OBJECTS {
        let object = data.read_subgroup_object().await?;
        if object.object_id != int(id) || object.payload != payload(LIVE, id) {
            return Err(
                format!("object {id} of the subscription is {:?}", object.object_id).into(),
            );
        }
    }
    fetch(conn, LIVE).await
}

pub async fn run(addr: &str) -> Result<String> {
    let mut viewer = connect(addr).await?;
    let prefix = TrackNamespace(vec![field("moqtap")]);
    let mut namespaces = viewer.subscribe_namespace(prefix, Vec::new()).await?;
    accepted(&mut viewer, &mut namespaces, "SUBSCRIBE_NAMESPACE").await?;

    let mut publisher = connect(addr).await?;
    let (live, wanted) = mpsc::channel(1);
    let serving = tokio::spawn(async move {
        let fetches = serve(&mut publisher, wanted).await;
        (publisher, fetches)
    });
    if let Err(err) = watch(&mut viewer, &mut namespaces, &live).await {
        if serving.is_finished() {
            if let (_, Err(cause)) = serving.await? {
                return Err(format!("{err}; publisher: {cause}").into());
            }
        }
        return Err(err);
    }
    let joined = join(addr).await?;
    drop(live);
    let (publisher, fetches) = serving.await?;
    let fetches = fetches?;
    match viewer.recv_on_request_stream(&mut namespaces).await? {
        ControlMessage::NamespaceDone(_) => {}
        other => return Err(format!("got {other:?} instead of the withdrawal of the namespace").into()),
    }
    publisher.close(0, b"done");
    viewer.close(0, b"done");
    Ok(format!(
        "namespaces, SUBSCRIBE and FETCH{joined}, {fetches} of 2 FETCHes passed on to the publisher"
    ))
}
