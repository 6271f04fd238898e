// Gives page-locked memory that copies use to system calls and to streams of C. With WAITS in its
// environment it waits for each copy first; with BESIDE the copies use other bytes of the page, and
// what reads asks for the whole page and gets less. With PAGEABLE all are downloads, to a variable
// of the program.
#include "cuda.h"

#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

extern "C" {
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off64_t, size_t);
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, sockaddr*, socklen_t*);
size_t __fread_chk(void*, size_t, size_t, size_t, FILE*);
size_t __fread_unlocked_chk(void*, size_t, size_t, size_t, FILE*);
}

namespace {

constexpr size_t page = 4096, part = 100, apart = 2000;
const bool waits = std::getenv("WAITS") != nullptr, beside = std::getenv("BESIDE") != nullptr;
const bool pageable = std::getenv("PAGEABLE") != nullptr;
// What a call that reads asks for.
const size_t asked = beside ? page : part;

alignas(page) char variable[page];
char *host, *device;
cudaStream_t stream;
int file, sockets[2], calls;
FILE* opened;

bool is_filled(const char* from, char value) {
  for (size_t at = 0; at < part; ++at) {
    if (from[at] != value) return false;
  }
  return true;
}

// A copy uses the page from now on.
void begin(cudaMemcpyKind kind) {
  char* at = beside ? host + apart : host;
  if (kind == cudaMemcpyHostToDevice && !pageable) {
    OK(cudaMemcpyAsync(device, at, part, kind, stream));
  } else {
    OK(cudaMemcpyAsync(at, device, part, cudaMemcpyDeviceToHost, stream));
  }
  if (waits) OK(cudaStreamSynchronize(stream));
}

void end() {
  OK(cudaStreamSynchronize(stream));
  ++calls;
}

// The file and the socket have bytes to be read.
void offer() {
  char bytes[part];
  std::memset(bytes, 7, part);
  EXPECT(ftruncate(file, 0) == 0 && pwrite(file, bytes, part, 0) == ssize_t(part));
  EXPECT(lseek(file, 0, SEEK_SET) == 0 && std::fseek(opened, 0, SEEK_SET) == 0);
  EXPECT(send(sockets[0], bytes, part, 0) == ssize_t(part));
  std::memset(host, 0, part);
}

// Drops what the call has left in the socket.
void drain() {
  char bytes[part];
  while (recv(sockets[1], bytes, part, MSG_DONTWAIT) > 0) {
  }
}

void want() {
  std::memset(host, 8, part);
  OK(cudaMemset(device, 8, part));
  EXPECT(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
  EXPECT(std::fseek(opened, 0, SEEK_SET) == 0);
}

// What the call has written, to the file or the socket, is what the program gave it.
void look() {
  char bytes[part] = {};
  if (pread(file, bytes, part, 0) != ssize_t(part)) {
    EXPECT(recv(sockets[1], bytes, part, MSG_DONTWAIT) == ssize_t(part));
  }
  EXPECT(is_filled(bytes, 8) || !(waits || beside));
}

// A call that writes to memory, beside a copy that reads it; and the other way round.
#define IN(call)                        \
  offer();                              \
  begin(cudaMemcpyHostToDevice);        \
  EXPECT((call) == decltype(call)(part)); \
  EXPECT(is_filled(host, 7));           \
  end();                                \
  drain()
#define OUT(call)                       \
  want();                               \
  begin(cudaMemcpyDeviceToHost);        \
  EXPECT((call) == decltype(call)(part)); \
  look();                               \
  end()

void reads() {
  iovec list[] = {{host, 40}, {host + 40, asked - 40}};
  msghdr message = {};
  message.msg_iov = list;
  message.msg_iovlen = 2;
  IN(read(file, host, asked));
  IN(pread(file, host, asked, 0));
  IN(pread64(file, host, asked, 0));
  IN(readv(file, list, 2));
  IN(preadv(file, list, 2, 0));
  IN(preadv64(file, list, 2, 0));
  IN(recv(sockets[1], host, asked, 0));
  IN(recvfrom(sockets[1], host, asked, 0, nullptr, nullptr));
  IN(recvmsg(sockets[1], &message, 0));
  IN(std::fread(host, 1, asked, opened));
  IN(fread_unlocked(host, 1, asked, opened));
  IN(__read_chk(file, host, asked, page));
  IN(__pread_chk(file, host, asked, 0, page));
  IN(__pread64_chk(file, host, asked, 0, page));
  IN(__recv_chk(sockets[1], host, asked, page, 0));
  IN(__recvfrom_chk(sockets[1], host, asked, page, 0, nullptr, nullptr));
  IN(__fread_chk(host, page, 1, asked, opened));
  IN(__fread_unlocked_chk(host, page, 1, asked, opened));
}

void writes() {
  iovec list[] = {{host, 40}, {host + 40, part - 40}};
  msghdr message = {};
  message.msg_iov = list;
  message.msg_iovlen = 2;
  OUT(write(file, host, part));
  OUT(pwrite(file, host, part, 0));
  OUT(pwrite64(file, host, part, 0));
  OUT(writev(file, list, 2));
  OUT(pwritev(file, list, 2, 0));
  OUT(pwritev64(file, list, 2, 0));
  OUT(send(sockets[0], host, part, 0));
  OUT(sendto(sockets[0], host, part, 0, nullptr, 0));
  OUT(sendmsg(sockets[0], &message, 0));
  OUT(std::fwrite(host, 1, part, opened));
  OUT(fwrite_unlocked(host, 1, part, opened));
}

}  // namespace

int main() {
  if (pageable) host = variable;
  else OK(cudaMallocHost(reinterpret_cast<void**>(&host), page));
  OK(cudaMalloc(reinterpret_cast<void**>(&device), page));
  OK(cudaStreamCreate(&stream));
  file = memfd_create("file", 0);
  EXPECT(file >= 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0);
  opened = fdopen(file, "w+");
  EXPECT(opened != nullptr && setvbuf(opened, nullptr, _IONBF, 0) == 0);
  reads();
  writes();
  std::printf("%d calls\n", calls);
  if (!pageable) OK(cudaFreeHost(host));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}
