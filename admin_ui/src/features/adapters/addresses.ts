/** Addresses of this part's pages, and of the files that a browser downloads by itself. */

export function tenantAddress(slug: string): string {
  return `/tenants/${encodeURIComponent(slug)}`;
}

export function adaptersAddress(slug: string): string {
  return `${tenantAddress(slug)}/adapters`;
}

export function adapterAddress(slug: string, name: string): string {
  return `${adaptersAddress(slug)}/${encodeURIComponent(name)}`;
}

export function versionAddress(slug: string, name: string, number: number): string {
  return `${adapterAddress(slug, name)}/versions/${number}`;
}

/** The upload page; the name stays in the address, so that a reload finds the uploads that it cut. */
export function uploadAddress(slug: string, name = ""): string {
  const address = `${tenantAddress(slug)}/upload`;
  return name === "" ? address : `${address}?adapter=${encodeURIComponent(name)}`;
}

export function fileAddress(slug: string, name: string, number: number, filename: string): string {
  return `/admin/v1${versionAddress(slug, name, number)}/files/${encodeURIComponent(filename)}`;
}
