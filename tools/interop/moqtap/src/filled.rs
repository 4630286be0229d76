// Steps of drafts 20 and 22, in which ranges are filters and late viewers receive fills.

use client::fill::{insert_parameter, FillParameters, LocationFilter};

/// Object ID in the End Location of FETCH_OK, inclusive.
const END_OBJECT: u64 = OBJECTS - 1;

fn flags(v: u64) -> VarInt {
    int(v)
}

fn no_properties() -> Option<Vec<u8>> {
    None
}

async fn request_group(conn: &mut Connection, group: u64) -> Result<RequestStream> {
    let range = LocationFilter::range(group, 0, 0)?;
    Ok(conn
        .fetch_range(namespace(), field("track"), &range, Vec::new())
        .await?)
}

/// Joins late: subscribes from the next object on, and compares the current group in the fill.
async fn join(addr: &str) -> Result<String> {
    let mut conn = connect(addr).await?;
    let mut parameters = vec![LocationFilter::next_object().parameter()?];
    let fill = FillParameters::inherited().with_range(&LocationFilter::relative(1))?;
    insert_parameter(&mut parameters, fill.parameter()?);
    let mut request = conn
        .subscribe(namespace(), field("track"), parameters)
        .await?;
    match conn.recv_on_request_stream(&mut request).await? {
        ControlMessage::SubscribeOk(_) => {}
        other => return Err(format!("SUBSCRIBE with a fill was answered with {other:?}").into()),
    }
    let (header, mut data) = conn.accept_fill_stream().await?;
    match header {
        AnyFetch(header) if header.request_id == request.request_id() => {}
        other => return Err(format!("unexpected {other:?} on the fill stream").into()),
    }
    compare(&mut data, LIVE).await?;
    conn.close(0, b"done");
    Ok(", a fill".into())
}
