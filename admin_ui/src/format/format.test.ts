import { describe, expect, it } from "vitest";

import { humanBytes } from "./bytes";
import { counted, grouped, percent, rate, weight } from "./numbers";
import { scaled, significant } from "./quantities";
import { duration, latency, seconds, span } from "./time";

describe("figures for people", () => {
  it("gives bytes three significant figures in binary units", () => {
    expect([0, 1023, 1024, 1536, 10_240, 268_435_456, 1_073_741_824].map(humanBytes)).toEqual([
      "0 B",
      "1023 B",
      "1.00 KiB",
      "1.50 KiB",
      "10.0 KiB",
      "256 MiB",
      "1.00 GiB",
    ]);
    expect(humanBytes(1024 * 1024 - 1)).toBe("1.00 MiB");
  });

  it("groups thousands and calms rates", () => {
    expect(grouped(1_234_567)).toBe("1,234,567");
    expect([0, 9.96, 123.4, 1234.5].map(rate)).toEqual(["0.0", "10.0", "123", "1,235"]);
    expect([counted(1, "key"), counted(2, "key")]).toEqual(["1 key", "2 keys"]);
  });

  it("shows weights as they were given", () => {
    expect([1, 0.5, 12.25, 1000].map(weight)).toEqual(["1", "0.5", "12.25", "1,000"]);
  });

  it("gives short times in milliseconds and long ones in words", () => {
    expect([0, 0.0342, 0.9994, 0.9996, 2.25, 90].map(seconds)).toEqual(["0 ms", "34 ms", "999 ms", "1.0 s", "2.3 s", "1 min 30 s"]);
  });

  it("gives latencies three significant figures", () => {
    expect([0.00042, 0.0265, 0.1234, 0.99996, 2.25, 12.34].map(latency)).toEqual(["0.42 ms", "26.5 ms", "123 ms", "1.00 s", "2.25 s", "12.3 s"]);
  });

  it("says how far a window reaches back", () => {
    expect([4.6, 60, 119, 300.2].map(span)).toEqual(["5 s", "60 s", "119 s", "5 min"]);
  });

  it("scales rates by decimal prefixes, and other figures not at all", () => {
    expect([0, 999.6, 1.652e14, 1.008e12].map((value) => scaled(value, "B/s"))).toEqual(["0 B/s", "1.00 kB/s", "165 TB/s", "1.01 TB/s"]);
    expect([0, 0.01234, 15, 163.9, 86_864].map(significant)).toEqual(["0", "0.0123", "15", "164", "86,864"]);
  });

  it("never rounds a small share to nothing, and divides nothing by nothing", () => {
    expect([percent(1, 3), percent(1, 100_000), percent(0, 5), percent(0, 0)]).toEqual([
      "33.3 %",
      "<0.1 %",
      "0.0 %",
      "–",
    ]);
  });

  it("names durations by their two largest units", () => {
    expect([59.9, 61, 3725, 200_000].map(duration)).toEqual(["59 s", "1 min 1 s", "1 h 2 min", "2 d 7 h"]);
  });
});
