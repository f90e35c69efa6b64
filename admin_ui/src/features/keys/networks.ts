const IPV4 = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/;
const IPV6 = /^[0-9a-f:]+(?:\d{1,3}(?:\.\d{1,3}){3})?$/i;

/** Addresses or networks, one a line or with commas between them. */
export function readNetworks(typed: string): string[] {
  return typed.split(/[\s,]+/).filter((each) => each !== "");
}

function isNetwork(text: string): boolean {
  const [address = "", prefix, ...rest] = text.split("/");
  if (rest.length > 0) return false;
  const four = IPV4.exec(address);
  const fits = (bits: number) => prefix === undefined || (/^\d{1,3}$/.test(prefix) && Number(prefix) <= bits);
  if (four) return four.slice(1).every((part) => Number(part) <= 255) && fits(32);
  return address.includes(":") && IPV6.test(address) && fits(128);
}

/** The first that is no network, in the page's words; the server has the last say. */
export function networksProblem(typed: string): string | null {
  const wrong = readNetworks(typed).find((each) => !isNetwork(each));
  return wrong === undefined ? null : `“${wrong}” is no address and no network such as 192.0.2.0/24.`;
}
