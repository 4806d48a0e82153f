'use client';
import { usePathname } from 'next/navigation';
import { useEffect, useRef } from 'react';
import { showChat } from '../../../../chat-page';

/** A chat page without end. */
export default function ChatPage() {
  const chat = useRef<HTMLElement>(null);
  const path = usePathname();
  useEffect(() => (chat.current ? showChat(chat.current, path) : undefined), [path]);
  return <main ref={chat} />;
}
