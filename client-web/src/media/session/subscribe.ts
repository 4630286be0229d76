import type { ReceivedObject, Session, Subscription, TrackName } from "../../moqt/index.ts";
import { CatalogReader, COMPRESSION_PROPERTY, decompress, MAX_CATALOG, type Catalog } from "./catalog.ts";

/** Subscriber priority (§7) of catalogs and other metadata, ahead of the media. */
export const DOCUMENT_PRIORITY = 16;

/** Follows a catalog and reports each new version, and the error if one is unreadable. */
export async function subscribeCatalog(
  session: Session,
  track: TrackName,
  o: { readonly rendezvousTimeout?: number },
  use: (catalog: Catalog | Error) => void,
): Promise<Subscription> {
  const reader = new CatalogReader();
  let sub: Subscription | undefined;
  const read = async (object: ReceivedObject): Promise<void> => {
    if (object.status !== "normal") return;
    try {
      const compression =
        object.properties.other?.get(COMPRESSION_PROPERTY) ?? sub?.properties.other?.get(COMPRESSION_PROPERTY) ?? 0;
      const catalog = reader.add(object.group, object.id, await decompress(object.payload, Number(compression)));
      if (catalog) use(catalog);
    } catch (e) {
      use(e instanceof Error ? e : new Error(String(e)));
    }
  };
  sub = await session.subscribe(track, { maxObject: MAX_CATALOG, object: (object) => void read(object) }, {
    ...o, join: true, priority: DOCUMENT_PRIORITY, filter: "largestObject",
  });
  return sub;
}
