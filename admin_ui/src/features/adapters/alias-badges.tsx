import { Badge } from "@mantine/core";

import type { Alias } from "@/api/types";

/** The aliases that point at a version, with its share where it has only one. */
export function AliasBadges({ number, aliases }: { number: number; aliases: readonly Alias[] }) {
  return aliases.flatMap(({ alias, targets }) =>
    targets
      .filter(({ version }) => version === number)
      .map(({ weight }) => (
        <Badge key={alias} size="sm" color="wing" maw={160} miw={0} title={alias}>
          {weight === 100 ? alias : `${alias} ${weight} %`}
        </Badge>
      )),
  );
}
