#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies a database or its WAL to the folder SYNCED whenever the process syncs it: that is what a power cut leaves. */
static void copy(int fd) {
  char link[64], path[4096], target[8192], part[8200], block[65536];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return;
  path[length] = 0;
  const char *end = strrchr(path, '.');
  if (!end || (strcmp(end, ".db") && strcmp(end, ".db-wal"))) return;

  snprintf(target, sizeof target, "%s%s", getenv("SYNCED"), strrchr(path, '/'));
  snprintf(part, sizeof part, "%s.part", target);
  int out = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ssize_t count;
  for (off_t at = 0; (count = pread(fd, block, sizeof block, at)) > 0; at += count) {
    if (write(out, block, count) != count) abort();
  }
  close(out);
  rename(part, target);
}

int fsync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  int result = real(fd);
  if (result == 0) copy(fd);
  return result;
}

int fdatasync(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  int result = real(fd);
  if (result == 0) copy(fd);
  return result;
}
