import { Anchor } from "@mantine/core";
import { Link } from "wouter";

export function TenantLink({ slug }: { slug: string }) {
  return (
    <Anchor component={Link} to={`/tenants/${encodeURIComponent(slug)}`} fz="sm" fw={600}>
      {slug}
    </Anchor>
  );
}
