/* The floor: copies what one connection sends to all the others, and does nothing else.
   Connections that stay silent are sinks; the first one that sends is the source. usage: copy PORT */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 1024
static char buffer[256 * 1024];

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pollfd fds[MOST];
    int count = 1, source = 0, on = 1;

    if (argc != 2) return 2;
    address.sin_port = htons((unsigned short)atoi(argv[1]));
    fds[0] = (struct pollfd){.fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLIN};
    setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fds[0].fd, (struct sockaddr *)&address, sizeof address) || listen(fds[0].fd, MOST)) return 1;
    while (!source) {
        poll(fds, count, -1);
        if (fds[0].revents && count < MOST) {
            fds[count] = (struct pollfd){.fd = accept(fds[0].fd, NULL, NULL), .events = POLLIN};
            setsockopt(fds[count++].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            continue; /* sinks that wait to be accepted come before the source's first byte */
        }
        for (int i = 1; i < count; i++)
            if (fds[i].revents) source = i;
    }
    for (ssize_t got; (got = read(fds[source].fd, buffer, sizeof buffer)) > 0;)
        for (int i = 1; i < count; i++)
            for (ssize_t sent = 0, n; i != source && sent < got; sent += n)
                if ((n = write(fds[i].fd, buffer + sent, got - sent)) < 0) return 1;
    return 0;
}
