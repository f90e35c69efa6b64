import type { ReactNode } from "react";

/** The few signs that the pages use, drawn on a 24 × 24 grid; decorative, the control beside them has the name. */
function Icon({ children, size = 18 }: { children: ReactNode; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth={1.8}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
    >
      {children}
    </svg>
  );
}

export const OverviewIcon = () => (
  <Icon>
    <path d="M3 12h4l3-8 4 16 3-8h4" />
  </Icon>
);

export const EngineIcon = () => (
  <Icon>
    <path d="M4 17a9 9 0 1 1 16 0M12 14l4-5M3 20h18" />
    <circle cx="12" cy="14" r="1.5" />
  </Icon>
);

export const PlannerIcon = () => (
  <Icon>
    <path d="M3 17L17 3l4 4L7 21zM7 13l2 2M10 10l3 3M13 7l2 2" />
  </Icon>
);

export const TenantsIcon = () => (
  <Icon>
    <path d="M4 21V6l8-3v18M12 9l8 3v9M2 21h20M8 8v.01M8 12v.01M8 16v.01M16 15v.01M16 18v.01" />
  </Icon>
);

export const UsageIcon = () => (
  <Icon>
    <path d="M3 21h18M6 21v-7M12 21V6M18 21V10" />
  </Icon>
);

export const PlansIcon = () => (
  <Icon>
    <path d="M4 7h9M17 7h3M4 17h3M11 17h9" />
    <circle cx="15" cy="7" r="2" />
    <circle cx="9" cy="17" r="2" />
  </Icon>
);

export const JobsIcon = () => (
  <Icon>
    <path d="M4 6l1.5 1.5L8 5M4 12l1.5 1.5L8 11M4 18l1.5 1.5L8 17M12 6.5h8M12 12.5h8M12 18.5h8" />
  </Icon>
);

export const AuditIcon = () => (
  <Icon>
    <path d="M6 3h9l4 4v14H6zM15 3v4h4M9 12h7M9 16h7" />
  </Icon>
);

export const SunIcon = () => (
  <Icon>
    <circle cx="12" cy="12" r="4" />
    <path d="M12 3v1M12 20v1M3 12h1M20 12h1M5.6 5.6l.7.7M17.7 17.7l.7.7M5.6 18.4l.7-.7M17.7 6.3l.7-.7" />
  </Icon>
);

export const MoonIcon = () => (
  <Icon>
    <path d="M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z" />
  </Icon>
);

export const SignOutIcon = () => (
  <Icon>
    <path d="M14 4H6a1 1 0 0 0-1 1v14a1 1 0 0 0 1 1h8M10 12h11M18 9l3 3-3 3" />
  </Icon>
);

export const CopyIcon = () => (
  <Icon size={15}>
    <rect x="8" y="8" width="12" height="12" rx="2" />
    <path d="M16 8V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v8a2 2 0 0 0 2 2h2" />
  </Icon>
);

export const CheckIcon = () => (
  <Icon size={15}>
    <path d="M5 12.5l4.5 4.5L19 7.5" />
  </Icon>
);

export const PlusIcon = () => (
  <Icon size={16}>
    <path d="M12 5v14M5 12h14" />
  </Icon>
);

export const CloseIcon = () => (
  <Icon size={16}>
    <path d="M6 6l12 12M18 6L6 18" />
  </Icon>
);

export const MoreIcon = () => (
  <Icon size={18}>
    <path d="M5 12v.01M12 12v.01M19 12v.01" strokeWidth={3} />
  </Icon>
);

export const UploadIcon = () => (
  <Icon size={16}>
    <path d="M12 16V4M7 9l5-5 5 5M4 16v3a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-3" />
  </Icon>
);

export const DownloadIcon = () => (
  <Icon size={15}>
    <path d="M12 4v12M7 11l5 5 5-5M4 20h16" />
  </Icon>
);
