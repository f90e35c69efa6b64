import { useSyncExternalStore } from "react";

const TICK_MS = 1000;

function subscribe(notify: () => void): () => void {
  const timer = setInterval(notify, TICK_MS);
  return () => {
    clearInterval(timer);
  };
}

const wholeSeconds = () => Math.floor(Date.now() / 1000);

/** The time in whole Unix seconds; whoever asks is drawn again when a second is over. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, wholeSeconds);
}
