stage 0:
     0  push rbx
     1  push rbp
     2  push r12
     4  push r13
     6  push r14
     8  push r15
     a  add rsp, 0FFFFFFFFFFFFFFA0h
     e  mov [rsp+10h], rdx
    13  mov [rsp+18h], rcx
    18  mov rax, [rdi]
    1b  mov [rsp+38h], rax
    20  mov rax, [rdi+8]
    24  mov [rsp+40h], rax
    29  mov rax, [rdi+10h]
    2d  mov [rsp+48h], rax
    32  mov rax, [rdi+18h]
    36  mov [rsp+50h], rax
    3b  mov rax, [rdi+20h]
    3f  mov [rsp+58h], rax
    44  mov rax, [rsp+10h]
    49  mov rcx, 0
    50  cmp rax, rcx
    53  cmovl rax, rcx
    57  mov [rsp], rax
    5b  mov rax, [rsp+18h]
    60  mov rcx, 1
    67  cmp rax, rcx
    6a  cmovg rax, rcx
    6e  mov [rsp+8], rax
    73  jmp 0C0h
    78  mov rax, [rsp]
    7c  xor edx, edx
    7e  mov rcx, 1
    85  div rcx
    88  mov [rsp+20h], rdx
    8d  mov rdi, [rsp+40h]
    92  imul rax, [rsp+20h], 2Ch
    9b  add rdi, rax
    9e  mov rsi, [rsp+58h]
    a3  imul rax, [rsp+20h], 84h
    ac  add rsi, rax
    af  call 0E1h
    b4  mov rax, [rsp]
    b8  add rax, 1
    bc  mov [rsp], rax
    c0  mov rax, [rsp]
    c4  cmp rax, [rsp+8]
    c9  jl near 78h
    cf  add rsp, 60h
    d3  pop r15
    d5  pop r14
    d7  pop r13
    d9  pop r12
    db  pop rbp
    dc  pop rbx
    dd  vzeroupper
    e0  ret
    e1  mov rdx, 3
    e8  vmovups ymm0, [rdi]
    ec  vmovups [rsi], ymm0
    f0  vmovups ymm0, [rel 354h]
    f8  vmaskmovps ymm0, ymm0, [rdi+20h]
    fe  vmovups ymm1, [rel 354h]
   106  vmaskmovps [rsi+20h], ymm1, ymm0
   10c  add rdi, 2Ch
   110  add rsi, 2Ch
   114  dec rdx
   117  jne near 0E8h
   11d  add rdi, 0FFFFFFFFFFFFFF7Ch
   124  add rsi, 0FFFFFFFFFFFFFF7Ch
   12b  ret
stage 1:
   12c  push rbx
   12d  push rbp
   12e  push r12
   130  push r13
   132  push r14
   134  push r15
   136  add rsp, 0FFFFFFFFFFFFFFA8h
   13a  mov [rsp+10h], rdx
   13f  mov [rsp+18h], rcx
   144  mov rax, [rdi]
   147  mov [rsp+30h], rax
   14c  mov rax, [rdi+8]
   150  mov [rsp+38h], rax
   155  mov rax, [rdi+10h]
   159  mov [rsp+40h], rax
   15e  mov rax, [rdi+18h]
   162  mov [rsp+48h], rax
   167  mov rax, [rdi+20h]
   16b  mov [rsp+50h], rax
   170  mov rax, [rsp+10h]
   175  mov rcx, 0
   17c  cmp rax, rcx
   17f  cmovl rax, rcx
   183  mov [rsp], rax
   187  mov rax, [rsp+18h]
   18c  mov rcx, 1
   193  cmp rax, rcx
   196  cmovg rax, rcx
   19a  mov [rsp+8], rax
   19f  jmp 22Bh
   1a4  mov rax, [rsp]
   1a8  xor edx, edx
   1aa  mov rcx, 1
   1b1  div rcx
   1b4  mov [rsp+28h], rdx
   1b9  xor edx, edx
   1bb  mov rcx, 1
   1c2  div rcx
   1c5  mov [rsp+20h], rdx
   1ca  mov rdi, [rsp+30h]
   1cf  imul rax, [rsp+28h], 18h
   1d8  add rdi, rax
   1db  mov rsi, [rsp+50h]
   1e0  imul rax, [rsp+20h], 84h
   1e9  add rsi, rax
   1ec  mov rdx, [rsp+40h]
   1f1  imul rax, [rsp+20h], 2Ch
   1fa  add rdx, rax
   1fd  mov rcx, [rsp+48h]
   202  imul rax, [rsp+20h], 2Ch
   20b  add rcx, rax
   20e  imul rax, [rsp+28h], 58h
   217  add rcx, rax
   21a  call 24Ch
   21f  mov rax, [rsp]
   223  add rax, 1
   227  mov [rsp], rax
   22b  mov rax, [rsp]
   22f  cmp rax, [rsp+8]
   234  jl near 1A4h
   23a  add rsp, 58h
   23e  pop r15
   240  pop r14
   242  pop r13
   244  pop r12
   246  pop rbp
   247  pop rbx
   248  vzeroupper
   24b  ret
   24c  vxorps ymm0, ymm0, ymm0
   250  vxorps ymm1, ymm1, ymm1
   254  vxorps ymm2, ymm2, ymm2
   258  vxorps ymm3, ymm3, ymm3
   25c  mov r8, 3
   263  vbroadcastss ymm4, [rdi]
   268  vmovups ymm5, [rsi]
   26c  vfmadd231ps ymm0, ymm4, ymm5
   271  vbroadcastss ymm6, [rdi+0Ch]
   277  vfmadd231ps ymm2, ymm6, ymm5
   27c  vmovups ymm5, [rel 354h]
   284  vmaskmovps ymm5, ymm5, [rsi+20h]
   28a  vfmadd231ps ymm1, ymm4, ymm5
   28f  vfmadd231ps ymm3, ymm6, ymm5
   294  prefetcht1 [rsi+84h]
   29b  add rdi, 4
   29f  add rsi, 2Ch
   2a3  dec r8
   2a6  jne near 263h
   2ac  add rdi, 0FFFFFFFFFFFFFFF4h
   2b0  add rsi, 0FFFFFFFFFFFFFF7Ch
   2b7  vxorps ymm4, ymm4, ymm4
   2bb  vmovups ymm5, [rdx]
   2bf  vaddps ymm6, ymm0, ymm5
   2c3  vmaxps ymm6, ymm4, ymm6
   2c7  vmovups [rcx], ymm6
   2cb  vmovups ymm6, [rel 354h]
   2d3  vmaskmovps ymm6, ymm6, [rdx+20h]
   2d9  vaddps ymm7, ymm1, ymm6
   2dd  vmaxps ymm7, ymm4, ymm7
   2e1  vmovups ymm8, [rel 354h]
   2e9  vmaskmovps [rcx+20h], ymm8, ymm7
   2ef  vaddps ymm5, ymm2, ymm5
   2f3  vmaxps ymm5, ymm4, ymm5
   2f7  vmovups [rcx+2Ch], ymm5
   2fc  vaddps ymm5, ymm3, ymm6
   300  vmaxps ymm4, ymm4, ymm5
   304  vmovups ymm5, [rel 354h]
   30c  vmaskmovps [rcx+4Ch], ymm5, ymm4
   312  ret
